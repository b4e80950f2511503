"""Made of three lines, or of two that do not meet at 0: ReLU6, hard tanh, clamp, hard sigmoid, absolute value."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.model.activations.curve import Curve
from lingraft.model.activations.record import Activation, Bend, Pieces


def _made_of_lines(
    name: str, value: Callable[[Tensor], Tensor], pieces: Pieces, breaks: tuple[float, ...], **names: Any
) -> Activation:
    """The record of a function that bends at `breaks`."""
    reach = 1 + max((abs(place) for place in breaks), default=0.0)
    ends = torch.tensor([-reach, *breaks, reach], dtype=torch.float64)
    slopes = (value(ends).diff() / ends.diff()).tolist()

    def derivative(z: Tensor) -> Tensor:
        slope = torch.full_like(z, slopes[0])
        for place, after in zip(breaks, slopes[1:], strict=True):
            slope = torch.where(z >= place, after, slope)
        return slope

    def size(largest: float) -> float:
        return float(value(torch.tensor([-largest, largest], dtype=torch.float64)).abs().max())

    curve = Curve(value, derivative, breaks, (0,) * (len(breaks) + 1), reach, 0.0)
    return Activation(name=name, value=value, lines=curve.lines, gap=curve.gap, size=size, pieces=pieces, **names)


def _clip(
    name: str, low: float | None, high: float | None, value: Callable[[Tensor], Tensor], **names: Any
) -> Activation:
    """z between `low` and `high` (None: without an end), and constant outside of that."""
    low, high = (None if end is None or math.isinf(end) else float(end) for end in (low, high))
    if low is not None and high is not None and not low < high:
        raise LingraftError(f"{name} between {low} and {high} is a constant. Give it a range.")
    if any(end is not None and math.isnan(end) for end in (low, high)):
        raise LingraftError(f"{name} between {low} and {high} gives no numbers.")
    if low is None:
        pieces = Pieces(slope=1.0, ceiling=high)
    else:
        pieces = Pieces(shift=low, bend=Bend(0.0, 1.0, 1.0, -low), ceiling=high)
    inside = (low is None or low < 0) and (high is None or high > 0)
    nearest = min((end for end in (low, high) if end is not None), key=abs, default=0.0)
    # the tangent at 0, or a ReLU's line to start from, moved to the bend that is nearest
    start = (1.0, 0.0) if inside else (0.4, 0.6 * nearest)
    breaks = tuple(end for end in (low, high) if end is not None)
    return _made_of_lines(name, value, pieces, breaks, start=start, **names)


def hardtanh(min_val: float = -1.0, max_val: float = 1.0) -> Activation:
    """z between min_val and max_val."""
    return _hardtanh(float(min_val), float(max_val))


@cache
def _hardtanh(low: float, high: float) -> Activation:
    """One object for each pair of numbers, so that records can be compared by `is`, as in all that follows."""
    return _clip(
        "hardtanh",
        low,
        high,
        lambda z: F.hardtanh(z, low, high),
        modules=(nn.Hardtanh,),
        calls=(F.hardtanh, F.hardtanh_),
        arguments={"min_val": low, "max_val": high},
        family=hardtanh,
    )


def clamp(min: float | None = None, max: float | None = None) -> Activation:  # torch's names
    """z between two numbers, of which one may be left out."""
    return _clamp(_number("clamp", min), _number("clamp", max))


@cache
def _clamp(low: float | None, high: float | None) -> Activation:
    return _clip(
        "clamp",
        low,
        high,
        lambda z: z.clone() if low is high is None else torch.clamp(z, low, high),
        calls=(torch.clamp, torch.clamp_, torch.clip, torch.clip_, "clamp", "clamp_", "clip", "clip_"),
        arguments={"min": low, "max": high},
        family=clamp,
    )


def clamp_min(min: float | None = None) -> Activation:
    """The larger of z and a number."""
    return _clamp_min(_number("clamp_min", min))


@cache
def _clamp_min(low: float | None) -> Activation:
    calls = (torch.clamp_min, torch.clamp_min_, "clamp_min", "clamp_min_")
    value = _clamp(low, None).value
    return _clip("clamp_min", low, None, value, calls=calls, arguments={"min": low}, family=clamp_min)


def clamp_max(max: float | None = None) -> Activation:
    """The smaller of z and a number."""
    return _clamp_max(_number("clamp_max", max))


@cache
def _clamp_max(high: float | None) -> Activation:
    calls = (torch.clamp_max, torch.clamp_max_, "clamp_max", "clamp_max_")
    value = _clamp(None, high).value
    return _clip("clamp_max", None, high, value, calls=calls, arguments={"max": high}, family=clamp_max)


def _number(name: str, value: Any) -> float | None:
    """An end as it is given, which must be a plain number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise LingraftError(f"{name} takes numbers here, not {type(value).__name__}. Write them in the model.")
    return None if value is None else float(value)


RELU6 = _clip("relu6", 0.0, 6.0, F.relu6, modules=(nn.ReLU6,), calls=(F.relu6,))
HARDTANH, CLAMP, CLAMP_MIN, CLAMP_MAX = hardtanh(), clamp(), clamp_min(), clamp_max()
HARDSIGMOID = _made_of_lines(
    "hardsigmoid",
    F.hardsigmoid,
    Pieces(bend=Bend(0.0, 1.0, 1 / 6, 0.5), ceiling=1.0),
    (-3.0, 3.0),
    start=(1 / 6, 0.5),
    modules=(nn.Hardsigmoid,),
    calls=(F.hardsigmoid,),
)


def _abs_interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    low, high = torch.minimum(lower.abs(), upper.abs()), torch.maximum(lower.abs(), upper.abs())
    return torch.where((lower < 0) & (upper > 0), 0.0, low), high


ABS = _made_of_lines(
    "abs",
    torch.abs,
    Pieces(slope=-1.0, bend=Bend(-1.0, 1.0)),
    (0.0,),
    start=(0.0, 0.0),
    interval=_abs_interval,
    calls=(torch.abs, torch.abs_, "abs", "abs_"),
)
