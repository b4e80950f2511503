"""ReLU, leaky ReLU and PReLU: two lines that meet at 0."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model.activations.record import Activation, Bend, Lines, Pieces, per_channel

#: The paper's: a slope in its "safe zone" [0, 0.5] and no intercept (Figure "Initialization").
_START = (0.4, 0.0)


def relax_relu(lower: Tensor, upper: Tensor) -> Lines:
    """CROWN's lines (Zhang et al. 2018): the chord above; below, the identity or zero, whichever leaves less area.

    Below, any slope in [0, 1] is sound (α-CROWN optimizes it). Stable neurons get their exact line on both sides.
    """
    # arithmetic instead of choices: with many columns `torch.where` takes tens of times as long
    high, low = upper.clamp(min=0), lower.clamp(max=0)
    width = high - low
    zero = (width == 0).to(width.dtype)  # where the interval is 0 alone: on
    # a width that overflows would make the chord 0, which is not above: NaN proves nothing
    slope = (high + zero) / (width + zero) + (width - width)
    intercept = -low * slope
    below = torch.maximum((upper > -lower).to(lower.dtype), zero)
    return Lines(below, torch.zeros_like(below), slope, intercept)


def _relu_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """The t of the dual bound: −l·u/(u − l) if l < 0 < u, else 0."""
    return relax_relu(lower, upper).upper_intercept


def leaky_relu(negative_slope: float = 0.01) -> Activation:
    """negative_slope·z below 0, z above; with a slope below 0 it falls and rises."""
    return _leaky_relu(float(negative_slope))


@cache
def _leaky_relu(slope: float) -> Activation:
    """One object for each slope, so that records can be compared by `is`."""
    return _two_lines(
        "leaky_relu",
        slope,
        lambda z: F.leaky_relu(z, slope),
        size=lambda size: max(1.0, abs(slope)) * size,
        modules=(nn.LeakyReLU,),
        calls=(F.leaky_relu, F.leaky_relu_),
        arguments={"negative_slope": slope},
        family=leaky_relu,
        onnx="LeakyRelu",
        attributes={"negative_slope": "alpha"},
    )


def prelu(weight: Tensor) -> Activation:
    """weight·z below 0, z above, with one weight for all or one for each channel, which are trained."""
    return _two_lines(
        "prelu",
        weight,
        lambda z: F.prelu(z, weight.to(z)),
        size=lambda size: max(1.0, float(weight.detach().abs().max())) * size,
        modules=(nn.PReLU,),
        calls=(F.prelu, torch.prelu, "prelu"),
        arguments={"weight": weight},
        family=prelu,
        build=_prelu_layer,
        onnx="PRelu",
    )


def _prelu_layer(weight: Tensor) -> nn.PReLU:
    layer = nn.PReLU(weight.numel())
    layer.weight = nn.Parameter(weight.detach().clone())
    return layer


def _two_lines(name: str, left: float | Tensor, value: Callable[[Tensor], Tensor], **names: Any) -> Activation:
    """The record of left·z below 0, z above; with a slope below 0 it falls and rises."""
    falls = isinstance(left, Tensor) or left < 0  # weights may fall below 0 at any time

    def lines(lower: Tensor, upper: Tensor) -> Lines:
        """left·z + bend·relu(z): a bend below 0 exchanges the lines."""
        slope = per_channel(left, lower)
        bend = 1 - slope
        below_slope, below, above_slope, above = _relu_lines(lower, upper)
        ends = [slope + bend * below_slope, bend * below, slope + bend * above_slope, bend * above]
        return Lines(*(torch.where(bend >= 0, ends[i], ends[i - 2]) for i in range(4)))

    def gap(lower: Tensor, upper: Tensor) -> Tensor:
        return (1 - per_channel(left, lower)).abs() * _relu_gap(lower, upper)

    def interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        ends = value(lower), value(upper)
        low, high, both = torch.minimum(*ends), torch.maximum(*ends), (lower < 0) & (upper > 0)
        return torch.where(both, low.clamp(max=0), low), torch.where(both, high.clamp(min=0), high)

    return Activation(
        name=name,
        value=value,
        lines=lines,
        gap=gap,
        start=_START,
        interval=interval if falls else None,
        pieces=Pieces(left, bend=Bend(left, 1.0)),
        **names,
    )


def _relu_lines(lower: Tensor, upper: Tensor) -> Lines:
    """`relax_relu`, with a derivative also where the interval is a point."""
    with torch.no_grad():
        below, zero, slope, _ = relax_relu(lower, upper)
    open_ = (lower < 0) & (upper > 0)
    slope = torch.where(open_, upper / torch.where(open_, upper - lower, 1.0), slope)
    return Lines(below, zero, slope, torch.where(open_, -lower * slope, 0.0))


RELU = Activation(
    name="relu",
    value=torch.relu,
    lines=relax_relu,
    gap=_relu_gap,
    size=lambda size: size,
    start=_START,
    pieces=Pieces(bend=Bend(0.0, 1.0)),
    modules=(nn.ReLU,),
    calls=(F.relu, torch.relu, torch.relu_, "relu", "relu_"),
    onnx="Relu",
)
LEAKY_RELU = leaky_relu(0.01)
PRELU = prelu(torch.full((1,), 0.25))
