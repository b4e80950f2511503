"""Sigmoid and tanh: convex below 0, concave above it, and symmetric about (0, f(0))."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lingraft.model.activations.record import Activation, Lines

#: Widens the lines by more than float64 can round away in computing them.
SLACK = 1e-10

#: Reduction of the bracket in each step of the golden-section search, and the number of steps.
_GOLDEN, _STEPS = (math.sqrt(5) - 1) / 2, 40


@dataclass(frozen=True)
class Curve:
    """f and its derivative, given its value; f(−z) = total − f(z)."""

    f: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    total: float

    def slope(self, z: Tensor) -> Tensor:
        """f'(z)."""
        return self.derivative(self.f(z))

    def lines(self, lower: Tensor, upper: Tensor) -> Lines:
        """The lower lines are the upper lines of the mirrored interval, mirrored back."""
        upper_slope, upper_intercept = self._line_above(lower, upper)
        mirrored_slope, mirrored_intercept = self._line_above(-upper, -lower)
        return Lines(mirrored_slope, self.total - mirrored_intercept - SLACK, upper_slope, upper_intercept + SLACK)

    def _line_above(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Slope and intercept of a line above f on [lower, upper]: a chord where f is convex, else a tangent.

        A tangent at d ≥ 0 is above f on all of [lower, upper] if it is above f at `lower`. The smallest such d is found
        by bisection, keeping the end that satisfies it; any larger d will do, and the one nearest to the middle of the
        interval leaves the smallest area. Where even d = upper does not, the chord is above f.
        """
        at_lower, at_upper = self.f(lower), self.f(upper)
        low, high = torch.zeros_like(lower), upper.clamp(min=0)

        def above(d: Tensor) -> Tensor:
            return self.f(d) + self.slope(d) * (lower - d) >= at_lower

        for _ in range(40):
            middle = (low + high) / 2
            good = above(middle)
            low, high = torch.where(good, low, middle), torch.where(good, middle, high)
        concave = lower >= 0
        middle = (lower + upper) / 2
        point = torch.where(concave, middle, torch.maximum(high, middle))
        slope = self.slope(point)
        tangent = self.f(point) - slope * point
        width = upper - lower
        chord = torch.where(width > 1e-9, (at_upper - at_lower) / width.clamp(min=1e-9), self.slope(upper.clamp(max=0)))
        # through whichever end is higher for this slope, so that rounding of a short chord cannot cut into f
        through = torch.maximum(at_lower - chord * lower, at_upper - chord * upper)
        use_chord = ~concave & ((upper <= 0) | ~above(upper))
        return torch.where(use_chord, chord, slope), torch.where(use_chord, through, tangent)


def _sigmoid_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """The least spread of sigmoid(z) − m·z over slopes m: it is convex in m, so a golden-section search finds it."""
    low, high = torch.zeros_like(lower), torch.full_like(lower, 0.25)
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        smaller = _spread(left, lower, upper) < _spread(right, lower, upper)
        low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
    return _spread((low + high) / 2, lower, upper)


def _spread(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """max − min of sigmoid(z) − slope·z on [lower, upper], at the ends or where the derivative is the slope."""
    value = (1 + (1 - 4 * slope).clamp(min=0).sqrt()) / 2  # of the sigmoid at the bend
    bend = torch.logit(value)
    points = (lower, upper, bend.clamp(lower, upper), (-bend).clamp(lower, upper))
    rest = torch.stack([torch.sigmoid(z) - slope * z for z in points])
    return rest.amax(0) - rest.amin(0)


def _tanh_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """tanh(z) = 2·sigmoid(2z) − 1."""
    return 2 * _sigmoid_gap(2 * lower, 2 * upper)


SIGMOID_CURVE = Curve(torch.sigmoid, lambda value: value * (1 - value), 1.0)
TANH_CURVE = Curve(torch.tanh, lambda value: 1 - value * value, 0.0)

SIGMOID = Activation(
    name="sigmoid",
    value=torch.sigmoid,
    lines=SIGMOID_CURVE.lines,
    gap=_sigmoid_gap,
    size=lambda size: 1.0,
    start=(0.25, 0.5),  # the tangent at 0
    rise=1.0,
    modules=(nn.Sigmoid,),
    calls=(torch.sigmoid, torch.sigmoid_, torch.special.expit, "sigmoid", "sigmoid_"),
    onnx="Sigmoid",
)
TANH = Activation(
    name="tanh",
    value=torch.tanh,
    lines=TANH_CURVE.lines,
    gap=_tanh_gap,
    size=lambda size: 1.0,
    start=(1.0, 0.0),  # the tangent at 0
    rise=2.0,
    modules=(nn.Tanh,),
    calls=(torch.tanh, torch.tanh_, "tanh", "tanh_"),
    onnx="Tanh",
)
