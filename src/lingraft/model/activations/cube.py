"""The cube: what odd powers are written with, so that they never fall and keep their sign between bounds."""

import math

import torch
from torch import Tensor

from lingraft.model.activations.curve import SHARE
from lingraft.model.activations.record import Activation, Lines

_GOLDEN, _STEPS = (math.sqrt(5) - 1) / 2, 40


def _value(z: Tensor) -> Tensor:
    return z * z * z


def _largest(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The largest z³ − slope·z on [lower, upper]: at an end, or where it is flat and z is negative."""
    flat = -(slope.clamp(min=0) / 3).sqrt()
    z = torch.stack([lower, upper, flat.clamp(lower, upper)])
    return (_value(z) - slope * z).amax(0)


def _slope_above(lower: Tensor, upper: Tensor) -> Tensor:
    """Of the chord, where that lies above the cube; else of the tangent parallel to it that touches where z < 0.

    The tangent at t < 0 meets the cube again at −2·t: it must not be left of the upper end.
    """
    chord = lower * lower + lower * upper + upper * upper
    return torch.where(2 * lower >= -upper, chord, torch.maximum(chord, 0.75 * upper.clamp(min=0).square()))


def _lines(lower: Tensor, upper: Tensor) -> Lines:
    """Slopes as good as they go, and the intercepts that belong to them; below, −z³ upside down."""
    above, below = _slope_above(lower, upper), _slope_above(-upper, -lower)
    size = torch.maximum(lower.abs(), upper.abs())
    slack = [SHARE * (_value(size) + slope * size) for slope in (below, above)]
    lowest = -_largest(below, -upper, -lower)
    return Lines(below, lowest - slack[0], above, _largest(above, lower, upper) + slack[1])


def _gap(lower: Tensor, upper: Tensor) -> Tensor:
    """The least spread of z³ − m·z over slopes m.

    On one side of 0 the slope is that of the chord, above which z³ is (z − l)·(z − u)·(z + l + u), so that nothing
    cancels on narrow intervals. Across 0 it is searched for: the spread is convex in m.
    """
    low, high = torch.zeros_like(lower), 3 * torch.maximum(lower.abs(), upper.abs()).square()

    def spread(m: Tensor) -> Tensor:
        return _largest(m, lower, upper) + _largest(m, -upper, -lower)

    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        smaller = spread(left) < spread(right)
        low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
    near, far = torch.minimum(lower.abs(), upper.abs()), torch.maximum(lower.abs(), upper.abs())
    flat = ((near * near + near * far + far * far) / 3).sqrt().clamp(near, far)
    alone = (flat - near) * (far - flat) * (flat + near + far)
    return torch.where((lower < 0) & (upper > 0), spread((low + high) / 2).clamp(min=0), alone)


CUBE = Activation(
    name="cube",
    value=_value,
    lines=_lines,
    gap=_gap,
    size=lambda size: size * size * size,
    start=(0.0, 0.0),
)
