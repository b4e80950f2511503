"""Lines below and above an activation on an interval: the only place where a nonlinearity is approximated.

A relaxation of neurons with z ∈ [l, u] is four tensors: lower slope and intercept, upper slope and intercept, with
lower_slope·z + lower_intercept ≤ act(z) ≤ upper_slope·z + upper_intercept on the whole interval.
"""

from typing import NamedTuple

import torch
from torch import Tensor

#: Widens the lines of smooth activations by more than float64 can round away in computing them.
SLACK = 1e-10


class Lines(NamedTuple):
    """Lower and upper lines, each tensor of the neurons' shape."""

    lower_slope: Tensor
    lower_intercept: Tensor
    upper_slope: Tensor
    upper_intercept: Tensor


def relax(kind: str, lower: Tensor, upper: Tensor) -> Lines:
    """Lines for an activation ("relu", "sigmoid", "tanh") on [lower, upper]."""
    return relax_relu(lower, upper) if kind == "relu" else relax_smooth(kind, lower, upper)


def relax_relu(lower: Tensor, upper: Tensor) -> Lines:
    """CROWN's lines (Zhang et al. 2018): the chord above; below, the identity or zero, whichever leaves less area.

    Below, any slope in [0, 1] is sound (α-CROWN optimizes it). Stable neurons get their exact line on both sides.
    """
    on, off = lower >= 0, upper <= 0
    width = (upper - lower).clamp(min=torch.finfo(lower.dtype).tiny)
    slope = torch.where(on, 1.0, torch.where(off, 0.0, upper / width))
    intercept = torch.where(on | off, 0.0, -lower * slope)
    below = torch.where(on, 1.0, torch.where(off, 0.0, (upper > -lower).to(lower.dtype)))
    return Lines(below, torch.zeros_like(below), slope, intercept)


def _value(kind: str, z: Tensor) -> Tensor:
    return torch.sigmoid(z) if kind == "sigmoid" else torch.tanh(z)


def _slope(kind: str, z: Tensor) -> Tensor:
    value = _value(kind, z)
    return value * (1 - value) if kind == "sigmoid" else 1 - value * value


def relax_smooth(kind: str, lower: Tensor, upper: Tensor) -> Lines:
    """Lines for sigmoid and tanh: convex below zero, concave above it, and symmetric about (0, f(0)).

    So the lower lines are the upper lines of the mirrored interval, mirrored back.
    """
    upper_slope, upper_intercept = _line_above(kind, lower, upper)
    mirrored_slope, mirrored_intercept = _line_above(kind, -upper, -lower)
    total = 1.0 if kind == "sigmoid" else 0.0  # f(−z) = total − f(z)
    return Lines(mirrored_slope, total - mirrored_intercept - SLACK, upper_slope, upper_intercept + SLACK)


def _line_above(kind: str, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and intercept of a line above f on [lower, upper]: a chord where f is convex, else a tangent.

    A tangent at d ≥ 0 is above f on all of [lower, upper] if it is above f at `lower`. The smallest such d is found by
    bisection, keeping the end that satisfies it; any larger d will do, and the one nearest to the middle of the
    interval leaves the smallest area. Where even d = upper does not, the chord is above f.
    """
    at_lower, at_upper = _value(kind, lower), _value(kind, upper)
    low, high = torch.zeros_like(lower), upper.clamp(min=0)

    def above(d: Tensor) -> Tensor:
        return _value(kind, d) + _slope(kind, d) * (lower - d) >= at_lower

    for _ in range(40):
        middle = (low + high) / 2
        good = above(middle)
        low, high = torch.where(good, low, middle), torch.where(good, middle, high)
    concave = lower >= 0
    middle = (lower + upper) / 2
    point = torch.where(concave, middle, torch.maximum(high, middle))
    slope = _slope(kind, point)
    tangent = _value(kind, point) - slope * point
    width = upper - lower
    chord = torch.where(width > 1e-9, (at_upper - at_lower) / width.clamp(min=1e-9), _slope(kind, upper.clamp(max=0)))
    # through whichever end is higher for this slope, so that rounding of a short chord cannot cut into f
    through = torch.maximum(at_lower - chord * lower, at_upper - chord * upper)
    use_chord = ~concave & ((upper <= 0) | ~above(upper))
    return torch.where(use_chord, chord, slope), torch.where(use_chord, through, tangent)
