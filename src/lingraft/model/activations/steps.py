"""Sign and floor: constant but for jumps.

At a jump both sides count, whatever the function's own value is there: a number that is 0 in one order of summation is
a little more or less in another. Between lines that hold for both sides, an interval with one jump has the hull of two
horizontal pieces: below it lie the horizontal line of the lower piece, and the line from where that ends to the end of
the upper piece; of these two the one is taken that leaves less area. Above it, the same the other way round. What is
longer lies between z − 1 and z, if it is a floor.

A gradient of a step is 0, and no attack would move. So one is given that leads it on: as if it were a slope near 0.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lingraft.model.activations.record import Activation, Lines

#: Widens lines that are not horizontal by more than float64 can round away from a few numbers of size 1.
_SLACK = 1e-12

#: Pieces shorter than this get horizontal lines: the others would be all but upright.
_SHORT = 1e-6


class _Stepped(torch.autograd.Function):
    """A function of steps with another gradient."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, step: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(z)
        ctx.slope = slope
        return step(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (z,) = ctx.saved_tensors
        return gradients[0] * ctx.slope(z), None, None


def _step_lines(lower: Tensor, upper: Tensor, jump: Tensor, low: Tensor, high: Tensor) -> Lines:
    """Lines of a function that jumps from `low` to `high` at `jump`, on [lower, upper] around it."""
    left, right = jump - lower, upper - jump
    rise = high - low
    slack = _SLACK * (1 + torch.maximum(low.abs(), high.abs())) + _SLACK * jump.abs()
    below, above = (right > left) & (right > _SHORT), (left > right) & (left > _SHORT)
    up_to_end, from_start = rise / right.clamp(min=_SHORT), rise / left.clamp(min=_SHORT)
    return Lines(
        torch.where(below, up_to_end, 0.0),
        torch.where(below, low - up_to_end * jump - slack * (1 + up_to_end), low),
        torch.where(above, from_start, 0.0),
        torch.where(above, high - from_start * jump + slack * (1 + from_start), high),
    )


def _sign(z: Tensor) -> Tensor:
    result: Tensor = _Stepped.apply(z, torch.sign, lambda z: 1 / (1 + z.abs()))
    return result


def _sign_between(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    one = torch.ones_like(lower)
    return torch.where(lower > 0, one, -one), torch.where(upper < 0, -one, one)


def _sign_lines(lower: Tensor, upper: Tensor) -> Lines:
    low, high = _sign_between(lower, upper)
    found = _step_lines(lower, upper, torch.zeros_like(lower), low, high)
    none = torch.zeros_like(low)
    return Lines(*(torch.where(low < high, a, b) for a, b in zip(found, (none, low, none, high), strict=True)))


SIGN = Activation(
    name="sign",
    value=_sign,
    lines=_sign_lines,
    gap=lambda lower, upper: torch.where((lower > 0) | (upper < 0), 0.0, 2.0).to(lower),
    size=lambda size: 1.0,
    start=(0.0, 0.0),
    rise=2.0,
    interval=_sign_between,
    steps=True,
)


def _floor(z: Tensor) -> Tensor:
    result: Tensor = _Stepped.apply(z, torch.floor, torch.ones_like)
    return result


def _floor_between(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    return lower.ceil() - 1, upper.floor()


def _floor_lines(lower: Tensor, upper: Tensor) -> Lines:
    low, high = _floor_between(lower, upper)
    one, none = torch.ones_like(low), torch.zeros_like(low)
    single = _step_lines(lower, upper, high, low, high)
    slack = _SLACK * (1 + torch.maximum(low.abs(), high.abs()))
    several = Lines(one, -one - slack, one, slack)
    found = (torch.where(high - low > 1, a, b) for a, b in zip(several, single, strict=True))
    return Lines(*(torch.where(low < high, a, b) for a, b in zip(found, (none, low, none, high), strict=True)))


FLOOR = Activation(
    name="floor",
    value=_floor,
    lines=_floor_lines,
    gap=lambda lower, upper: (upper.floor() - lower.ceil() + 1).clamp(0, 1),
    size=lambda size: size + 1,
    start=(1.0, -0.5),
    interval=_floor_between,
    steps=True,
)
