"""Lines of the taps in domains, as functions of multipliers α: what the search for good bounds can choose.

Below an open ReLU lies α·z. A smooth tap has several pairs of lines, close together at one of `PLACES` each, and α from
0 to 1 goes through them: between two neighbours it mixes them, (1 − t)·line + t·line, which lies on the same side of
the function as both. Only one line of a pair is used at a time, so one α is enough for both.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.model.activations import Activation, Lines, activation
from lingraft.model.activations.record import PLACES
from lingraft.model.activations.relu import relax_relu
from lingraft.solver.columns import columns_of

#: (first, last, kind) of the taps of each site.
Kinds = list[tuple[int, int, str]]


@dataclass
class Relaxation:
    """Lines (T, B) with slope 0 below open ReLUs, and where α matters: `free` (T, B) is 1 there and 0 elsewhere.

    `mixed` (S,) are the taps with a choice of lines, `knots` (places, 4, S, B) these lines.
    """

    fixed: Lines
    free: Tensor
    mixed: Tensor | None = None
    knots: Tensor | None = None

    def select(self, columns: Tensor) -> "Relaxation":
        """The same for some of the domains."""
        fixed = Lines(*(columns_of(line, columns) for line in self.fixed))
        knots = None if self.knots is None else columns_of(self.knots, columns)
        return Relaxation(fixed, columns_of(self.free, columns), self.mixed, knots)

    def at(self, alpha: Tensor) -> Lines:
        """The lines for α (T, B)."""
        lines = self.fixed._replace(lower_slope=torch.addcmul(self.fixed.lower_slope, self.free, alpha))
        if self.mixed is None or self.knots is None:
            return lines
        mixed = mixed_at(self.knots, alpha[self.mixed])
        return Lines(*(line.index_copy(0, self.mixed, new) for line, new in zip(lines, mixed, strict=True)))

    def gradient(self, alpha: Tensor, q: Tensor, z: Tensor, of_relus: Tensor) -> Tensor:
        """∂bound/∂α (T, B), given coefficients q, pre-activations z at the minimizer, and what it is for ReLUs."""
        result = of_relus.mul_(self.free)
        if self.mixed is None or self.knots is None:
            return result
        last = len(PLACES) - 1
        part = (last * alpha[self.mixed]).floor_().clamp_(max=last - 1)
        q, z = q[self.mixed], z[self.mixed]
        below = torch.ge(q, 0)
        turn = torch.zeros_like(q)
        for i in range(last):
            slope, intercept, slope_above, above = self.knots[i + 1] - self.knots[i]
            rise = torch.where(below, torch.addcmul(intercept, slope, z), torch.addcmul(above, slope_above, z))
            turn.addcmul_(torch.eq(part, i).to(q.dtype), rise)
        return result.index_copy_(0, self.mixed, turn.mul_(q).mul_(last))


class _Known:
    """The lines of one kind of taps on the intervals (T, 1) of a domain: most taps of most others have the same."""

    def __init__(self, record: Activation, lower: Tensor, upper: Tensor):
        self.record, self.lower, self.upper = record, lower, upper
        self.lines = choices(record, lower, upper)

    def move(self, lower: Tensor, upper: Tensor) -> None:
        """Go to another domain."""
        self.lower, self.upper, self.lines = lower, upper, self.of(lower, upper)

    def of(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Lines (places, 4, T, B) on [lower, upper] (T, B): only those of other intervals are found anew."""
        result = self.lines.repeat(1, 1, 1, lower.shape[1])
        tap, column = ((lower != self.lower) | (upper != self.upper)).nonzero(as_tuple=True)
        if len(tap):
            result[:, :, tap, column] = choices(self.record, lower[tap, column], upper[tap, column])
        return result


class SmoothLines:
    """Finds the lines of smooth taps; those of intervals that most domains share are found once."""

    def __init__(self, kinds: Kinds):
        self._rows: dict[str, Tensor] = {}
        for kind in dict.fromkeys(kind for first, last, kind in kinds if last > first):
            self._rows[kind] = torch.cat([torch.arange(a, b) for a, b, other in kinds if other == kind])
        self._known: dict[str, _Known] = {}

    def relaxation(self, lower: Tensor, upper: Tensor, open_: Tensor) -> Relaxation:
        """Of taps on [lower, upper] (T, B), of which `open_` (T, B) are ReLUs that are still unstable."""
        fixed = torch.zeros(4, *lower.shape, dtype=lower.dtype, device=lower.device)
        free, mixed, knots = open_.to(lower.dtype), [], []
        for kind, every in self._rows.items():
            record, rows = activation(kind), every.to(lower.device)
            low, high = lower[rows], upper[rows]
            if record.pieces is not None:
                lines = relax_relu(low, high)
                lines = lines._replace(lower_slope=lines.lower_slope * (1 - free[rows]))
                fixed.index_copy_(1, rows, torch.stack(lines))
                continue
            found = self._found(kind, record, low, high)
            if len(found) == 1:
                fixed.index_copy_(1, rows, found[0])
            else:
                free[rows] = 1
                mixed.append(rows)
                knots.append(found)
        if not knots:
            return Relaxation(Lines(*fixed), free)
        return Relaxation(Lines(*fixed), free, torch.cat(mixed), torch.cat(knots, 2))

    def _found(self, kind: str, record: Activation, lower: Tensor, upper: Tensor) -> Tensor:
        """Lines (places, 4, taps, B) of one kind of taps."""
        if not lower.shape[1]:
            return choices(record, lower, upper)
        first = lower[:, :1].clone(), upper[:, :1].clone()
        if kind in self._known:
            self._known[kind].move(*first)
        else:
            self._known[kind] = _Known(record, *first)
        return self._known[kind].of(lower, upper)


def choices(record: Activation, lower: Tensor, upper: Tensor) -> Tensor:
    """All lines (places, 4, …) of a smooth activation on intervals, one pair if there is no choice.

    They are sound in float64; in float32 they are good enough to search with, and take half the time.
    """
    if record.lines_at is None:
        return torch.stack(record.lines(lower.double(), upper.double()))[None].to(lower.dtype)
    place = torch.tensor(PLACES).to(lower).view(-1, *(1,) * lower.dim())
    low, high = (end.expand(len(PLACES), *lower.shape) for end in (lower, upper))
    return torch.stack(record.lines_at(low, high, place), 1)


def at_alpha(record: Activation, lower: Tensor, upper: Tensor, alpha: Tensor) -> Lines:
    """The lines of a smooth activation on intervals (N,) for α (N,)."""
    found = choices(record, lower, upper)
    mixed = found[0] if len(found) == 1 else mixed_at(found, alpha)
    return Lines(*(line for line in mixed))


def mixed_at(knots: Tensor, alpha: Tensor) -> Tensor:
    """The mixture (4, …) of lines (places, 4, …) for α (…)."""
    where = (len(knots) - 1) * alpha
    mixed = torch.zeros_like(knots[0])
    for i, knot in enumerate(knots):
        mixed.addcmul_((where - i).abs_().neg_().add_(1).clamp_(min=0), knot)
    return mixed
