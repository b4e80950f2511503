"""Exponential, reciprocal and square root: what operations are written with that are convex, or concave, as a whole.

Below a convex function lies each of its tangents, above it, between two points, the chord. A chord is given as any
slope with the larger of the two intercepts that reach the ends, so that rounding of the slope makes it loose, never
wrong; the slope m of a tangent that is off by a few u·|m| is paid for by u·|m|·|z|. All of the concave ones is the
same upside down.

Where a function has no value, or none that is finite, its bounds are infinite, and so are the intercepts of its lines.
Whoever computes with these gets numbers that are not finite either, which prove nothing.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lingraft.model.activations.curve import SHARE
from lingraft.model.activations.record import Activation, Lines

Function = Callable[[Tensor], Tensor]


def _lines(f: Function, derivative: Function, lower: Tensor, upper: Tensor, touch: Tensor) -> Lines:
    """Of a convex function: the tangent at `touch`, which lies between the ends, and the chord."""
    at_lower, at_upper = f(lower), f(upper)
    width = upper - lower
    narrow = width <= 1e-8 * (lower.abs() + upper.abs())
    slope = torch.where(narrow, derivative(touch), (at_upper - at_lower) / torch.where(narrow, 1.0, width))
    above = torch.maximum(at_lower - slope * lower, at_upper - slope * upper)
    tangent = derivative(touch)
    below = f(touch) - tangent * touch
    size = torch.maximum(lower.abs(), upper.abs())
    known = at_lower.abs() + at_upper.abs()
    return Lines(
        tangent, below - SHARE * (known + tangent.abs() * size), slope, above + SHARE * (known + slope.abs() * size)
    )


def _upside_down(lines: Lines) -> Lines:
    """The lines of −f from those of f."""
    return Lines(-lines.upper_slope, -lines.upper_intercept, -lines.lower_slope, -lines.lower_intercept)


def _chosen(where: Tensor, one: Lines, other: Lines) -> Lines:
    return Lines(*(torch.where(where, a, b) for a, b in zip(one, other, strict=True)))


def _flat(low: Tensor, high: Tensor) -> Lines:
    """Horizontal lines."""
    return Lines(torch.zeros_like(low), low, torch.zeros_like(high), high)


# Exponential


def _exp_lines(lower: Tensor, upper: Tensor) -> Lines:
    return _lines(torch.exp, torch.exp, lower, upper, (lower + upper) / 2)


def _exp_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """Between the chord and the tangent that is parallel to it, at log m for a slope m."""
    width = upper - lower
    narrow = width < 1e-6
    slope = torch.where(narrow, 1.0, (upper.exp() - lower.exp()) / torch.where(narrow, 1.0, width))
    gap = lower.exp() + slope * (slope.log() - lower) - slope
    return torch.where(narrow, upper.exp() * width.square() / 8, gap).clamp(min=0)


EXPONENTIAL = Activation(
    name="exponential",
    value=torch.exp,
    lines=_exp_lines,
    gap=_exp_gap,
    size=lambda size: math.exp(min(size, 709.0)) if size <= 709 else math.inf,
    start=(1.0, 1.0),
)


# Reciprocal


def _reciprocal_lines(lower: Tensor, upper: Tensor) -> Lines:
    """Convex above 0; below 0 it is −1/(−z). Across 0 it has no bounds."""
    above, below = lower > 0, upper < 0
    low, high = torch.where(above, lower, -upper), torch.where(above, upper, -lower)
    known = above | below
    low, high = torch.where(known, low, 1.0), torch.where(known, high, 1.0)
    # touches where it is parallel to the chord
    lines = _lines(torch.reciprocal, _reciprocal_slope, low, high, (low.sqrt() * high.sqrt()).clamp(low, high))
    negative = _upside_down(lines)._replace(lower_slope=lines.upper_slope, upper_slope=lines.lower_slope)
    infinite = torch.full_like(lower, torch.inf)
    return _chosen(above, lines, _chosen(below, negative, _flat(-infinite, infinite)))


def _reciprocal_slope(z: Tensor) -> Tensor:
    return -1 / (z * z)


def _reciprocal_between(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    known = (lower > 0) | (upper < 0)
    return (
        torch.where(known, upper.reciprocal(), -torch.inf),
        torch.where(known, lower.reciprocal(), torch.inf),
    )


def _reciprocal_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """Between the chord and the tangent at √(l·u): 1/l + 1/u − 2/√(l·u)."""
    known = (lower > 0) | (upper < 0)
    return torch.where(known, (lower.abs().rsqrt() - upper.abs().rsqrt()).square(), torch.inf)


RECIPROCAL = Activation(
    name="reciprocal",
    value=torch.reciprocal,
    lines=_reciprocal_lines,
    gap=_reciprocal_gap,
    size=lambda size: math.inf,
    start=(-1.0, 2.0),
    interval=_reciprocal_between,
)


# Square root


def _root_ends(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ends, none of them below 0, and whether there is a root between them everywhere."""
    return lower.clamp(min=0), torch.maximum(upper, lower).clamp(min=0), lower >= 0


def _root_lines(lower: Tensor, upper: Tensor) -> Lines:
    """Concave. Its tangent at 0 would be upright, so it touches a little to the right of it at least."""
    low, high, known = _root_ends(lower, upper)
    touch = ((low.sqrt() + high.sqrt()) / 2).square().clamp(min=1e-12)
    lines = _upside_down(_lines(_minus_root, _minus_root_slope, low, high, touch))
    # the tangent may touch outside of the interval, where the root is larger than at its ends
    lines = lines._replace(upper_intercept=lines.upper_intercept + SHARE * touch.sqrt())
    infinite = torch.full_like(lower, torch.inf)
    return _chosen(known, lines, _flat(-infinite, infinite))


def _minus_root(z: Tensor) -> Tensor:
    return -z.sqrt()


def _minus_root_slope(z: Tensor) -> Tensor:
    return -0.5 * z.rsqrt()


def _root_between(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    low, high, known = _root_ends(lower, upper)
    return torch.where(known, low.sqrt(), -torch.inf), torch.where(known, high.sqrt(), torch.inf)


def _root_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """Between the chord and the tangent that is parallel to it: (√u − √l)² / (4·(√u + √l))."""
    low, high, known = _root_ends(lower, upper)
    one, other = low.sqrt(), high.sqrt()
    return torch.where(known, (other - one).square() / (4 * (one + other)).clamp(min=1e-300), torch.inf)


ROOT = Activation(
    name="square_root",
    value=torch.sqrt,
    lines=_root_lines,
    gap=_root_gap,
    size=lambda size: math.sqrt(size),
    start=(0.5, 0.5),
    interval=_root_between,
)
