"""What rounding can take away, and how it is paid for.

Float64 rounds each operation to the nearest number: the relative error is at most u = 2⁻⁵³. A sum of n products,
computed in any order and with or without fused operations, differs from the real one by at most γ(n)·Σ|aᵢ||bᵢ| with
γ(n) = n·u/(1 − n·u) (Higham, Accuracy and Stability of Numerical Algorithms, §3.1), unless something underflows.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT = 2.0**-53

#: Every bound gives this away too. An underflow costs at most 2⁻¹⁰⁷⁵ times a value; values over LARGEST are refused,
#: and no check makes 10²⁰ operations, so this is more than all underflows together.
UNDERFLOW = 1e-200
LARGEST = 1e100


def gamma(terms: int) -> float:
    """A bound of the relative error of a sum of so many products, and of a few operations more.

    It exceeds γ(terms + 4) by 0.1 %, which covers the rounding errors made in computing the error bound itself: those
    are of relative size γ(terms), far below 0.1 % for fewer than 10¹² terms.
    """
    return 1.001 * (terms + 4) * UNIT


def down(x: Array) -> Array:
    """The float64 number below: not more than the real result that was rounded to x."""
    return np.nextafter(x, -np.inf)


def up(x: Array) -> Array:
    """The float64 number above."""
    return np.nextafter(x, np.inf)


def middle(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Center and radius with [lower, upper] ⊆ center ± radius; the radius is exactly 0 where lower is upper."""
    center = lower + (upper - lower) / 2
    radius = np.where(lower == upper, 0.0, up(np.maximum(upper - center, center - lower)))
    return np.where(lower == upper, lower, center), radius


def around(value: Array, radius: Array) -> tuple[Array, Array]:
    """Lower and upper bounds value ∓ radius, rounded outwards; exact where the radius is 0."""
    exact = radius == 0
    return np.where(exact, value, down(value - radius)), np.where(exact, value, up(value + radius))
