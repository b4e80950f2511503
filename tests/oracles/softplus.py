"""Softplus, an activation that lingraft does not know by itself: its record, as somebody outside would write it.

log(1 + exp z) is convex, so it lies below its chords and above its tangents. Beyond 20 torch takes z itself, which is
2e-9 lower: there it falls a little, so that its bounds are not quite its values at the ends.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model.activations import Activation, Lines

#: More than torch leaves out beyond 20, and than rounding takes.
SLACK = 1e-8


def lines(lower: Tensor, upper: Tensor) -> Lines:
    """The tangent in the middle below, the chord above; where the chord is too short to have a slope, a tangent."""
    middle, width = (lower + upper) / 2, upper - lower
    tangent = torch.sigmoid(middle)
    chord = torch.where(width > 1e-6, (F.softplus(upper) - F.softplus(lower)) / width.clamp(min=1e-6), tangent)
    above = torch.maximum(F.softplus(lower) - chord * lower, F.softplus(upper) - chord * upper)
    slack = SLACK * (1 + lower.abs() + upper.abs())
    return Lines(tangent, F.softplus(middle) - tangent * middle - slack, chord, above + slack)


def gap(lower: Tensor, upper: Tensor) -> Tensor:
    """How far the chord gets above it: where its derivative, the sigmoid, is the chord's slope."""
    width = (upper - lower).clamp(min=1e-6)
    slope = ((F.softplus(upper) - F.softplus(lower)) / width).clamp(1e-12, 1 - 1e-12)
    touch = torch.logit(slope).clamp(lower, upper)
    return (F.softplus(lower) + slope * (touch - lower) - F.softplus(touch)).clamp(min=0)


def interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """It never falls but for the step at 20."""
    return F.softplus(lower) - SLACK, F.softplus(upper) + SLACK


SOFTPLUS = Activation(
    name="softplus",
    value=F.softplus,
    lines=lines,
    gap=gap,
    size=lambda size: size + math.log(2),
    start=(0.5, math.log(2)),  # the tangent at 0
    interval=interval,
    modules=(nn.Softplus,),
    calls=(F.softplus,),
    arguments={"beta": 1.0, "threshold": 20.0},
    onnx="Softplus",
)
