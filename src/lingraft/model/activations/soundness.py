"""A check that an activation's record holds, on fine grids in float64 over many intervals: none that lies gets in."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.model.activations.record import PLACES, Activation

#: What a few operations in float64 may round away, as a share of what they work on; the solver allows for as much.
_ROUNDING = 16 * 2.0**-53

#: Intervals and points of a grid on which gaps are compared, and by how much they may differ: a grid sees a bit less.
_GAPS, _SHARE_OF_GAP, _LEAST_GAP = 400, 0.02, 1e-6
_GOLDEN = (math.sqrt(5) - 1) / 2


def require_sound(record: Activation) -> None:
    """Refuse a record that does not hold, saying what is wrong and where.

    Checked are the lines, the bounds on an interval, the gap and the size against the values of the function, and that
    the torch calls give these values. The intervals are everyday, tiny, of one point, huge, on one side of 0 and around
    it. A grid proves nothing, but a wrong sign, a rule that takes a falling function for a rising one, or a line that
    is a tangent on the wrong side do not get past it.
    """
    _require_plausible(record)
    lower, upper = _intervals()
    points = _points(lower, upper)
    values = record.value(points)
    if values.shape != points.shape or values.dtype != torch.float64 or not bool(torch.isfinite(values).all()):
        raise _refusal(record, "its values are not finite float64 numbers of the shape of z")
    _require_lines(record, lower, upper, points, values)
    _require_interval(record, lower, upper, points, values)
    _require_size(record, points, values)
    _require_gap(record)
    if record.pieces is not None:
        _require_values(record, "what its pieces say", record.pieces.at(points), points, values)
    _require_calls(record)


def _refusal(record: Activation, what: str) -> LingraftError:
    return LingraftError(f"the record of the activation {record.name!r} does not hold: {what}.")


def _require_plausible(record: Activation) -> None:
    if not record.name.isidentifier():
        raise LingraftError(f"the name {record.name!r} of an activation must be letters, digits and underscores.")
    if not all(math.isfinite(number) for number in record.start):
        raise _refusal(record, f"a grafted neuron cannot start from the line {record.start}")
    if not (math.isfinite(record.rise) and record.rise > 0):
        raise _refusal(record, f"its rise is {record.rise}, and must be a number above 0")
    unknown = set(record.attributes) - set(record.arguments)
    if unknown:
        raise _refusal(record, f"the ONNX attribute of {unknown.pop()!r} stands for no argument")
    if record.onnx is not None and not record.modules:
        raise _refusal(record, "it is read from ONNX as a layer, and there is none in `modules`")


def _intervals() -> tuple[Tensor, Tensor]:
    """Ends (intervals,) of intervals of all kinds, float64."""
    generator = torch.Generator().manual_seed(0)
    count = 1600
    size = 10 ** (torch.rand(2, count, generator=generator, dtype=torch.float64) * 4 - 2)
    ends = torch.randn(2, count, generator=generator, dtype=torch.float64) * size
    lower, upper = ends.sort(0).values
    tiny = 10 ** (-12 * torch.rand(count, generator=generator, dtype=torch.float64) - 1)
    group = torch.arange(count) % 6
    upper = torch.where(group == 1, lower + tiny, upper)
    upper = torch.where(group == 2, lower, upper)
    lower, upper = torch.where(group == 3, lower.abs(), lower), torch.where(group == 3, upper.abs(), upper)
    lower, upper = torch.where(group == 4, -lower.abs(), lower), torch.where(group == 4, -upper.abs(), upper)
    lower, upper = torch.where(group == 5, -tiny, lower), torch.where(group == 5, tiny.flip(0), upper)
    huge = torch.logspace(0, 9, 40, dtype=torch.float64)
    some, zero = torch.linspace(-3, 3, 40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    whole = torch.arange(-100, 101, dtype=torch.float64)  # where pieces of a function may have been put together
    lower = torch.cat([lower, -huge, -huge, some, -huge, zero, -3 * huge, huge, whole - 1e-10])
    upper = torch.cat([upper, huge, some.clamp(min=-1), some + huge, zero, huge, -huge, 3 * huge, whole + 1e-10])
    return torch.minimum(lower, upper), torch.maximum(lower, upper)


def _points(lower: Tensor, upper: Tensor) -> Tensor:
    """Points (intervals, points) of each interval: evenly spaced, near its ends, and wherever functions bend."""
    near = torch.logspace(-9, -1, 9, dtype=torch.float64)
    share = torch.cat([torch.linspace(0, 1, 81, dtype=torch.float64), near, 1 - near])
    bends = torch.logspace(-6, 3, 46, dtype=torch.float64)
    bends = torch.cat([-bends, torch.zeros(1, dtype=torch.float64), bends]).expand(len(lower), -1)
    low, high = lower[:, None], upper[:, None]
    return torch.cat([low + share * (high - low), bends], dim=1).clamp(low, high)


def _require_below(
    record: Activation,
    what: str,
    below: Tensor,
    above: Tensor,
    slack: Tensor,
    points: Tensor,
    ends: tuple[Tensor, Tensor],
) -> None:
    """Refuse where `below` is above `above` (intervals, points) by more than the slack, or one is no number."""
    excess = below - above - slack
    wrong = ~(excess <= 0)
    if not bool(wrong.any()):
        return
    i, j = divmod(int(excess.nan_to_num(nan=math.inf).argmax()), excess.shape[1])
    low, high = (float(end.flatten()[i]) for end in ends)
    by = float((below - above)[i, j])
    raise _refusal(record, f"{what} by {by:.3g} at x = {float(points[i, j]):.6g} on [l, u] = [{low:.6g}, {high:.6g}]")


def _require_lines(record: Activation, lower: Tensor, upper: Tensor, points: Tensor, values: Tensor) -> None:
    found = [record.lines(lower, upper)]
    if record.lines_at is not None:
        found += [record.lines_at(lower, upper, torch.tensor(place).to(lower)) for place in PLACES]
    if any(line.shape != lower.shape for lines in found for line in lines):
        raise _refusal(record, "its lines do not have the shape of the interval's ends")
    for lines in found:
        below_slope, below, above_slope, above = (line[:, None] for line in lines)
        sides = (
            ("its lower line lies above it", below_slope * points + below, values, below_slope, below),
            ("its upper line lies below it", values, above_slope * points + above, above_slope, above),
        )
        for what, one, other, slope, intercept in sides:
            slack = _ROUNDING * ((slope * points).abs() + intercept.abs() + values.abs())
            _require_below(record, what, one, other, slack, points, (lower, upper))


def _require_interval(record: Activation, lower: Tensor, upper: Tensor, points: Tensor, values: Tensor) -> None:
    low, high = (end[:, None] for end in record.between(lower, upper))
    rule = "its bounds, taken at the ends as if it never fell," if record.interval is None else "its interval rule"
    slack = _ROUNDING * values.abs()
    _require_below(record, f"{rule} gives a lower bound above it", low, values, slack, points, (lower, upper))
    _require_below(record, f"{rule} gives an upper bound below it", values, high, slack, points, (lower, upper))


def _require_size(record: Activation, points: Tensor, values: Tensor) -> None:
    flat, order = points.abs().flatten().sort()
    largest = values.abs().flatten()[order].cummax(0).values
    chosen = torch.linspace(0, len(flat) - 1, 2000).long()
    for size, reached in zip(flat[chosen].tolist(), largest[chosen].tolist(), strict=True):
        given = record.size(size)
        if not given >= reached * (1 - _ROUNDING):
            raise _refusal(record, f"its size is {given:.6g} for |x| ≤ {size:.6g}, where it reaches {reached:.6g}")


def _require_gap(record: Activation) -> None:
    lower, upper = (end[:_GAPS] for end in _intervals())
    fine = torch.linspace(-8, 8, 321, dtype=torch.float64).expand(len(lower), -1).clamp(lower[:, None], upper[:, None])
    points = torch.cat([_points(lower, upper), fine], dim=1)
    values = record.value(points)
    given, seen = record.gap(lower, upper), _least_spread(points, values)
    slack = _SHARE_OF_GAP * seen + _LEAST_GAP
    ends = lower, upper
    what = "its gap is larger than that of a line found on a grid,"
    _require_below(record, what, given[:, None], seen[:, None], slack[:, None], lower[:, None], ends)
    what = "its gap is smaller than what every line on a grid leaves,"
    _require_below(record, what, seen[:, None], given[:, None], slack[:, None], lower[:, None], ends)
    _require_below(
        record,
        "its gap is below 0",
        -given[:, None],
        torch.zeros_like(given[:, None]),
        slack[:, None],
        lower[:, None],
        ends,
    )


def _least_spread(points: Tensor, values: Tensor) -> Tensor:
    """The least max − min of values − m·points over slopes m, by golden-section search: it is convex in m."""
    order = points.argsort(1)
    z, f = points.gather(1, order), values.gather(1, order)
    step = z.diff(dim=1)
    slopes = torch.where(step > 1e-9, f.diff(dim=1) / step.clamp(min=1e-9), 0.0)
    low, high = slopes.amin(1), slopes.amax(1)

    def spread(m: Tensor) -> Tensor:
        rest = f - m[:, None] * z
        return rest.amax(1) - rest.amin(1)

    for _ in range(60):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        smaller = spread(left) < spread(right)
        low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
    return spread((low + high) / 2)


def _require_values(record: Activation, what: str, given: Tensor, points: Tensor, values: Tensor) -> None:
    wrong = ~((given - values).abs() <= 1e-12 * values.abs().clamp(min=1))
    if bool(wrong.any()):
        at = wrong.flatten().nonzero()[0]
        x, one, other = (float(t.flatten()[at]) for t in (points, given, values))
        raise _refusal(record, f"{what} gives {one:.9g} at x = {x:.6g}, its value is {other:.9g}")


def _called(function: Callable[..., Any], arguments: dict[str, Any], z: Tensor) -> Any:
    try:
        return function(z, *arguments.values())
    except TypeError:  # some functions of torch take them by name only
        return function(z, **arguments)


def _require_calls(record: Activation) -> None:
    """Refuse torch calls that compute something else, or give a tensor that is not new."""
    points = torch.linspace(-30, 30, 601, dtype=torch.float64)
    values = record.value(points)
    arguments = {k: value.double() if isinstance(value, Tensor) else value for k, value in record.arguments.items()}
    calls: list[tuple[str, Callable[[Tensor], Any]]] = []
    for module in record.modules:
        layer = record.module() if record.build is not None else module(**record.arguments)
        calls.append((module.__name__, layer.double().eval()))
    for call in record.calls:
        function = getattr(Tensor, call) if isinstance(call, str) else call
        name = call if isinstance(call, str) else getattr(call, "__name__", str(call))
        calls.append((name, partial(_called, function, arguments)))
    for name, function in calls:
        z = points.clone()
        with torch.no_grad():
            given = function(z)
        _require_values(record, name, given, points, values)
        if not name.endswith("_") and (given.data_ptr() == z.data_ptr() or not torch.equal(z, points)):
            raise _refusal(record, f"{name} changes its argument, or gives it back")
