"""A record's lines and bounds against its values on fine grids of intervals, in float64."""

import torch
from torch import Tensor

from lingraft.model.activations import Activation

#: What a few operations in float64 may round away here, as a share of what they work on; the solver allows for more.
_ROUNDING = 16 * 2.0**-53


def grid(lower: Tensor, upper: Tensor, extra: Tensor | None = None) -> Tensor:
    """Points (intervals, points) of each interval: evenly spaced, close to both ends, and the `extra` ones in it."""
    near = torch.logspace(-12, -1, 12, dtype=torch.float64)
    share = torch.cat([torch.linspace(0, 1, 101, dtype=torch.float64), near, 1 - near])
    low, high = lower[:, None], upper[:, None]
    points = low + share * (high - low)
    if extra is not None:
        points = torch.cat([points, extra.expand(len(lower), -1)], 1)
    return points.clamp(low, high)  # sums can round past an end


def assert_holds(record: Activation, lower: Tensor, upper: Tensor, extra: Tensor | None = None) -> None:
    """Both lines and the bounds hold at all points of the grid; the gap is no more than what the lines leave."""
    z = grid(lower, upper, extra)
    values = record.value(z)
    assert bool(torch.isfinite(values).all())
    assert_holds_at(record, lower, upper, z, values)
    assert bool((record.gap(lower, upper) >= 0).all())


def assert_holds_at(record: Activation, lower: Tensor, upper: Tensor, z: Tensor, values: Tensor) -> None:
    """The same at points (intervals, points) with these values."""
    lines = record.lines(lower, upper)
    assert all(bool(torch.isfinite(line).all()) for line in lines)
    below, under, above, over = (line[:, None] for line in lines)
    slack = _ROUNDING * ((below * z).abs() + under.abs() + values.abs())
    assert bool((below * z + under <= values + slack).all())
    slack = _ROUNDING * ((above * z).abs() + over.abs() + values.abs())
    assert bool((above * z + over >= values - slack).all())
    low, high = (end[:, None] for end in record.between(lower, upper))
    assert bool(((values >= low - _ROUNDING * values.abs()) & (values <= high + _ROUNDING * values.abs())).all())


def intervals(size: float, count: int = 400, low: float | None = None) -> tuple[Tensor, Tensor]:
    """Ends of everyday, tiny and one-point intervals with ends up to `size`, and not below `low`."""
    generator = torch.Generator().manual_seed(0)
    scale = size ** (2 * torch.rand(2, count, generator=generator, dtype=torch.float64) - 1)
    ends = scale * (2 * torch.rand(2, count, generator=generator, dtype=torch.float64) - 1)
    if low is not None:
        ends = low + ends.abs()
    lower, upper = ends.sort(0).values
    tiny = 10 ** (-14 * torch.rand(count, generator=generator, dtype=torch.float64))
    group = torch.arange(count) % 4
    upper = torch.where(group == 1, lower + tiny, torch.where(group == 2, lower, upper))
    return lower, upper
