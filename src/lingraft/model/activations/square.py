"""The square: what a product of two values is written with, a·b = ((a + b)² − (a − b)²) / 4."""

import torch
from torch import Tensor

from lingraft.model.activations.record import Activation, Lines

#: Widens the lines, as a share of the squares they are made of, by more than float64 can round away.
_SLACK = 2.0**-48


def _lines(lower: Tensor, upper: Tensor) -> Lines:
    """Convex: (z − m)² ≥ 0 is the tangent in the middle m, (z − l)·(z − u) ≤ 0 the chord."""
    middle = (lower + upper) / 2
    slack = _SLACK * (lower.square() + upper.square())
    return Lines(2 * middle, -middle.square() - slack, lower + upper, -lower * upper + slack)


def _interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    low, high = lower.square(), upper.square()
    across = (lower <= 0) & (upper >= 0)
    return torch.where(across, 0.0, torch.minimum(low, high)), torch.maximum(low, high)


SQUARE = Activation(
    name="square",
    value=torch.square,
    lines=_lines,
    gap=lambda lower, upper: ((upper - lower) / 2).square(),  # between the chord and the tangent parallel to it
    size=lambda size: size * size,
    start=(0.0, 0.0),
    interval=_interval,
)
