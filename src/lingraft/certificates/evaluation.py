"""What a network computes at one point, and what rounding can change: the checker's own reading of a file.

Points are of the inner shape, as `inner` makes them; outputs are vectors.
"""

import numpy as np

from lingraft.certificates.network import Network
from lingraft.certificates.nodes import Input, Site
from lingraft.certificates.rounding import UNDERFLOW, UNIT, Array, down, gamma, up


def outputs(network: Network, point: Array) -> Array:
    """In float64."""
    values: list[Array] = []
    for node in network.nodes:
        values.append(point if isinstance(node, Input) else node.forward(*(values[i] for i in node.inputs)))
    return values[-1].reshape(-1)


def enclosure(network: Network, point: Array) -> tuple[Array, Array]:
    """Numbers between which the real outputs lie, whatever was rounded."""
    values: list[Array] = []
    errors: list[Array] = []
    for node in network.nodes:
        before, wrong = [values[i] for i in node.inputs], [errors[i] for i in node.inputs]
        if isinstance(node, Input):
            values.append(point)
            errors.append(np.zeros_like(point))
            continue
        sizes = [np.abs(value) + error for value, error in zip(before, wrong, strict=True)]
        if isinstance(node, Site):
            slopes = np.abs(node.bend) + np.abs(node.slope)
            error = slopes * wrong[0] + gamma(8) * (slopes * sizes[0] + np.abs(node.shift))
        else:
            own = gamma(node.terms) * (node.magnitude(*sizes) + np.abs(node.offset()))
            error = node.magnitude(*wrong) * (1 + gamma(node.terms)) + own + node.doubt(sizes[0])
        values.append(node.forward(*before))
        errors.append(error * (1 + 16 * UNIT) + UNDERFLOW)
    value, error = values[-1].reshape(-1), errors[-1].reshape(-1)
    return down(value - error), up(value + error)


def noisy(network: Network, point: Array, unit: float, random: np.random.Generator) -> Array:
    """The outputs where every value on the way is wrong by 4 `unit` times the sum of the sizes of its terms.

    The signs are random. A program that rounds by `unit` makes errors of about that size, and they are passed on and
    cancel as its own do, which a bound of the worst case could not say.
    """
    values: list[Array] = []
    for node in network.nodes:
        if isinstance(node, Input):
            values.append(point)
            continue
        before = [values[i] for i in node.inputs]
        sizes = [np.abs(value) for value in before]
        if isinstance(node, Site):
            size = (np.abs(node.bend) + np.abs(node.slope)) * sizes[0] + np.abs(node.shift)
        else:  # the doubts are in units of float64, and may be far larger than the constants themselves
            size = node.magnitude(*sizes) + np.abs(node.offset()) + node.doubt(sizes[0]) / UNIT
        sign = random.integers(0, 2, node.shape) * 2 - 1
        values.append(node.forward(*before) + 4 * unit * sign * size)
    return values[-1].reshape(-1)
