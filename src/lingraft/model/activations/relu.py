"""ReLU and leaky ReLU: two lines that meet at 0."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model.activations.record import Activation, Lines

#: The paper's: a slope in its "safe zone" [0, 0.5] and no intercept (Figure "Initialization").
_START = (0.4, 0.0)


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


def _relu_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """The t of the dual bound: −l·u/(u − l) if l < 0 < u, else 0."""
    return relax_relu(lower, upper).upper_intercept


def leaky_relu(negative_slope: float = 0.01) -> Activation:
    """negative_slope·z below 0, z above; with a slope below 0 it falls and rises."""
    return _leaky_relu(float(negative_slope))


@cache
def _leaky_relu(slope: float) -> Activation:
    """One object for each slope, so that records can be compared by `is`."""
    bend = 1.0 - slope

    def value(z: Tensor) -> Tensor:
        return F.leaky_relu(z, slope)

    def lines(lower: Tensor, upper: Tensor) -> Lines:
        """slope·z + bend·relu(z): a bend below 0 exchanges the lines."""
        below_slope, below, above_slope, above = relax_relu(lower, upper)
        low, high = (slope + bend * below_slope, bend * below), (slope + bend * above_slope, bend * above)
        return Lines(*low, *high) if bend >= 0 else Lines(*high, *low)

    def interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        ends = value(lower), value(upper)
        low, high, both = torch.minimum(*ends), torch.maximum(*ends), (lower < 0) & (upper > 0)
        return torch.where(both, low.clamp(max=0), low), torch.where(both, high.clamp(min=0), high)

    return Activation(
        name="leaky_relu",
        value=value,
        lines=lines,
        gap=lambda lower, upper: abs(bend) * _relu_gap(lower, upper),
        size=lambda size: max(1.0, abs(slope)) * size,
        start=_START,
        interval=None if slope >= 0 else interval,
        slopes=(slope, 1.0),
        modules=(nn.LeakyReLU,),
        calls=(F.leaky_relu, F.leaky_relu_),
        arguments={"negative_slope": slope},
        family=leaky_relu,
        onnx="LeakyRelu",
        attributes={"negative_slope": "alpha"},
    )


RELU = Activation(
    name="relu",
    value=torch.relu,
    lines=relax_relu,
    gap=_relu_gap,
    size=lambda size: size,
    start=_START,
    slopes=(0.0, 1.0),
    modules=(nn.ReLU,),
    calls=(F.relu, torch.relu, torch.relu_, "relu", "relu_"),
    onnx="Relu",
)
LEAKY_RELU = leaky_relu(0.01)
