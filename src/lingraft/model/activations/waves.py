"""Sine and cosine: convex where they are negative, concave where they are positive.

An interval is moved by a multiple of 2π so that its middle lies between −π and π. If it is at most 3π long it lies
within ±2.5π then, where there are a few inflections, and `Curve` has the lines. On what is longer there are two peaks
of one kind with one of the other between them, so that no slope but 0 makes them smaller: lines are ±1, the gap is 2.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lingraft.model.activations.curve import SHARE, Curve
from lingraft.model.activations.record import Activation, Lines

_TURN = 2 * math.pi

#: Longest interval on which lines follow the curve, and how far from 0 it may lie.
_LONGEST, _FARTHEST = 3 * math.pi, 1e6

#: What moving an interval may round away, as a share of its ends and at least: many times what it does.
_NEAR = 1e-9


def _wave(
    name: str, value: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor], peak: float
) -> Activation:
    """The record of a function of period 2π that is 1 at `peak` and has its inflections π/2 from there."""
    inflections = [peak + (k + 0.5) * math.pi for k in range(-6, 6)]
    breaks = tuple(place for place in inflections if abs(place) < 3.9 * math.pi)
    first = value(torch.tensor(breaks[0] - 0.1, dtype=torch.float64))
    before = -1 if float(first) > 0 else 1
    curve = Curve(value, derivative, breaks, tuple(before * (-1) ** i for i in range(len(breaks) + 1)), 4 * math.pi)

    def moved(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Whether the interval is short, its ends moved, or others where it is not, and by how much they were."""
        size = torch.maximum(lower.abs(), upper.abs())
        short = (upper - lower <= _LONGEST) & (size <= _FARTHEST)
        shift = _TURN * ((lower + upper) / (2 * _TURN)).round()
        return (
            short,
            torch.where(short, lower - shift, 0.0),
            torch.where(short, upper - shift, 0.0),
            torch.where(short, shift, 0.0),
        )

    def lines(lower: Tensor, upper: Tensor) -> Lines:
        short, low, high, shift = moved(lower, upper)
        below, under, above, over = curve.lines(low, high)
        slack = SHARE * torch.maximum(lower.abs(), upper.abs()).detach()
        found = Lines(
            below,
            under - below * shift - slack * (1 + below.abs()),
            above,
            over - above * shift + slack * (1 + above.abs()),
        )
        one, none = torch.ones_like(below), torch.zeros_like(below)
        flat = Lines(none, -one, none, one)
        return Lines(*(torch.where(short, a, b) for a, b in zip(found, flat, strict=True)))

    def interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        ends = value(lower), value(upper)
        slack = _NEAR * (1 + torch.maximum(lower.abs(), upper.abs()).detach())
        low, high = torch.minimum(*ends) - 1e-12, torch.maximum(*ends) + 1e-12

        def free(place: float) -> Tensor:
            """Whether no place + 2πk is in the interval, or near it."""
            next_one = place + _TURN * ((lower - slack - place) / _TURN).ceil()
            return (next_one > upper + slack) & (slack < 0.01)

        return torch.where(free(peak + math.pi), low, -1.0), torch.where(free(peak), high, 1.0)

    def gap(lower: Tensor, upper: Tensor) -> Tensor:
        short, low, high, _ = moved(lower, upper)
        return torch.where(short, curve.gap(low, high), 2.0)

    return Activation(
        name=name,
        value=value,
        lines=lines,
        gap=gap,
        size=lambda size: 1.0,
        start=(0.0, 0.0),
        rise=2.0,
        interval=interval,
    )


def _minus_sin(z: Tensor) -> Tensor:
    return -torch.sin(z)


SINE = _wave("sine", torch.sin, torch.cos, math.pi / 2)
COSINE = _wave("cosine", torch.cos, _minus_sin, 0.0)
