"""Collapse a network over a region, exactly, to its unstable neurons.

Over a region every neuron that is grafted, always on or always off is linear. What is left are the unstable ones, the
*taps*. For the taps of site k, with h = act(z) of the taps before it,

    z_k = P_k x + Q_k h + r_k            margins = p x + q h + c

Nothing is approximated here: relaxations only enter through the bounds of the taps (`bounds.py`) and in `dual.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.solver.bounds import SiteBounds
from lingraft.solver.budget import Budget
from lingraft.solver.crown import chunks, neuron_rows, pass_back
from lingraft.solver.matrix import Matrix
from lingraft.solver.network import Network
from lingraft.solver.nodes import Site
from lingraft.solver.rounding import Loss
from lingraft.solver.rows import Rows
from lingraft.solver.substitution import TapRows
from lingraft.solver.tournaments import Tournaments, tournaments


@dataclass
class Taps:
    """The unstable neurons of one site: `index` (U,) into the site, numbers `first` to `last` among all taps.

    Taps of the same `place` (U,) are at the same position of a map, so they look at the same pixels.
    """

    site: int
    kind: str
    index: Tensor
    place: Tensor
    first: int
    last: int
    P: Matrix
    Q: Matrix
    r: Tensor
    #: what rounding may have taken from P x + Q h + r, (U,)
    loss: Tensor


@dataclass
class Collapsed:
    """The collapsed network: taps of all sites in order, their bounds (T,), and the margins' rows over image and taps.

    `p` (n, L), `q` (T, L) and `c` (L,) give L margins; `center` and `radius` (n,) the region. All float64.
    """

    taps: list[Taps]
    lower: Tensor
    upper: Tensor
    p: Tensor
    q: Tensor
    c: Tensor
    center: Tensor
    radius: Tensor
    #: what the taps of max pooling compare
    tournaments: Tournaments | None = None

    @property
    def count(self) -> int:
        """Number of taps."""
        return len(self.lower)

    def up_to(self, number: int) -> "Collapsed":
        """What comes before the site with that number among the sites; the rows of its taps take the margins' place."""
        here = self.taps[number]
        lower, upper = self.lower[: here.first], self.upper[: here.first]
        p, q = (matrix.dense().t().contiguous() for matrix in (here.P, here.Q))
        return Collapsed(self.taps[:number], lower, upper, p, q, here.r, self.center, self.radius)


def collapse(
    network: Network, found: SiteBounds, spec: Tensor, offset: Tensor, budget: Budget | None = None
) -> Collapsed:
    """Collapse over the box and with the bounds of `found`, for the margins spec·logits + offset (L rows)."""
    return _Collapse(network, found, budget or Budget()).finish(spec, offset)


class _Collapse:
    """One pass over the sites: rows of a site's taps pass back to the image and to the taps before them."""

    def __init__(self, network: Network, found: SiteBounds, budget: Budget):
        self.network, self.found, self.budget = network, found, budget
        #: slope and intercept of the linear neurons (0 for taps), and the 1-based number of each tap (0 for others)
        self.linear: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.taps: list[Taps] = []
        unstable = {i: found.unstable(network, i) for i in network.sites}
        total = sum(int(u.sum()) for u in unstable.values())
        budget.allow(_footprint(total, found.center.numel()))
        known = self._known(unstable)
        for i in network.sites:
            site = network.nodes[i]
            assert isinstance(site, Site)
            index = unstable[i].flatten().nonzero().flatten()
            first = self.taps[-1].last if self.taps else 0
            number = torch.zeros(site.size, dtype=torch.float64, device=index.device)
            number[index] = torch.arange(first + 1, first + 1 + len(index), dtype=torch.float64, device=index.device)
            self.linear[i] = (
                torch.where(unstable[i], 0.0, found.lines[i].lower_slope),
                torch.where(unstable[i], 0.0, found.lines[i].lower_intercept),
                number.view(site.shape),
            )
            P, Q, r, loss = self._given(known[i]) if known else self._rows(site.inputs[0], index, first)
            place = index // site.shape[-1] if len(site.shape) > 1 else torch.zeros_like(index)
            self.taps.append(Taps(i, site.kind, index, place, first, first + len(index), P, Q, r, loss))

    def _known(self, unstable: dict[int, Tensor]) -> dict[int, TapRows]:
        """The rows of all taps, if bounding them has left any, and of the same taps."""
        unfolding, known = self.found.unfolding, {}
        for i, here in unstable.items():
            rows = None if unfolding is None else unfolding.rows(i)
            if rows is None or not torch.equal(rows.index, here.flatten().nonzero().flatten()):
                return {}
            known[i] = rows
        return known

    def _given(self, rows: TapRows) -> tuple[Matrix, Matrix, Tensor, Tensor]:
        """P, Q, r and loss from rows over x − center and the taps."""
        center, share = self.found.center.flatten(), self.found.share
        count, pixels = len(rows.index), len(center)
        row = torch.arange(count).repeat_interleave(rows.start.diff())
        there, on_image = rows.value != 0, rows.column < pixels
        p, q = (there & on_image).nonzero().flatten(), (there & ~on_image).nonzero().flatten()
        parts = rows.value[p] * center[rows.column[p]]
        moved, size = (torch.zeros_like(rows.r).index_add_(0, row[p], each) for each in (parts, parts.abs()))
        P = Matrix.of(row[p], rows.column[p], rows.value[p], (count, pixels))
        Q = Matrix.of(row[q], rows.column[q] - pixels, rows.value[q], (count, rows.first - pixels))
        return P, Q, rows.r - moved, rows.loss + 2 * share * size

    def _rows(self, start: int, index: Tensor, before: int) -> tuple[Matrix, Matrix, Tensor, Tensor]:
        """P, Q, r and loss of the chosen neurons of node `start`, with `before` taps before them."""
        P, Q = _Pieces(self.found.center.numel(), self.found.center.device), _Pieces(before, self.found.center.device)
        none = index.new_zeros(0, dtype=torch.float64)
        constants, losses = [none], [none]
        if len(index):
            for some in chunks(self.network, start, index, self.budget):
                constant, loss = self._tap(*neuron_rows(self.network, start, some), P, Q)
                constants.append(constant)
                losses.append(self.found.losses[start] + loss)
        return P.matrix(len(index)), Q.matrix(len(index)), torch.cat(constants), torch.cat(losses)

    def _tap(self, pending: dict[int, Rows], constant: Tensor, P: "_Pieces", Q: "_Pieces") -> tuple[Tensor, Tensor]:
        """Pass rows back, through linear neurons to the image and to the taps on the way; gives constants and loss."""

        def at_site(i: int, here: Rows) -> tuple[Rows, Tensor]:
            slope, intercept, number = self.linear[i]
            a = here.coefficients
            Q.add(here, number)
            constant = (a * here.view_of(intercept)).flatten(1).sum(1)
            return Rows(a * here.view_of(slope), here.origin), constant

        loss = Loss(self.found.losses)
        final, constant = pass_back(self.network, pending, constant, at_site, loss, self.budget)
        every = torch.arange(1, self.found.center.numel() + 1, dtype=torch.float64, device=self.found.center.device)
        P.add(final, every.view(self.found.center.shape))
        P.rows += len(constant)
        Q.rows += len(constant)
        return constant, torch.zeros_like(constant) + loss.total

    def finish(self, spec: Tensor, offset: Tensor) -> Collapsed:
        """The margins' rows, and everything put together."""
        total = self.taps[-1].last if self.taps else 0
        p, q = _Pieces(self.found.center.numel(), self.found.center.device), _Pieces(total, self.found.center.device)
        none, last = self.found.center.new_zeros(0), len(self.network.nodes) - 1
        constants = [none]
        for some in chunks(self.network, last, torch.arange(len(spec), device=spec.device), self.budget):
            constants.append(self._tap({last: Rows(spec[some])}, torch.zeros_like(offset[some]), p, q)[0])
        bounds = [
            (low.flatten()[t.index], high.flatten()[t.index])
            for t in self.taps
            for low, high in [self.found.bounds[t.site]]
        ]
        return Collapsed(
            self.taps,
            torch.cat([none, *[low for low, _ in bounds]]),
            torch.cat([none, *[high for _, high in bounds]]),
            p.matrix(len(spec)).dense().t().contiguous(),
            q.matrix(len(spec)).dense().t().contiguous(),
            torch.cat(constants) + offset,
            self.found.center.flatten(),
            self.found.radius.flatten(),
            tournaments(self.network, self.found, {t.site: (t.first, t.index) for t in self.taps}, self._rows),
        )


def _footprint(taps: int, pixels: int) -> float:
    """Bytes that the rows of so many taps may take, in both precisions and both directions, if they are all dense."""
    return taps * (pixels + taps / 2) * 2 * (8 + 4)


class _Pieces:
    """Collects the coefficients that rows have on numbered places, dense or as entries, into one Matrix."""

    def __init__(self, columns: int, device: torch.device):
        self.columns, self.device = columns, device
        self.rows = 0
        self.entries: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, rows: Rows, number: Tensor) -> None:
        """Coefficients where `number` (the node's shape, 1-based, 0 for none) says which column they belong to."""
        if not self.columns:
            return
        a = rows.coefficients
        if rows.origin is None:
            places = number.flatten().nonzero().flatten()
            column = number.flatten()[places].long() - 1
            row = torch.arange(len(a), device=a.device)[:, None].expand(-1, len(places))
            entry = (row.flatten(), column.expand(len(a), -1).flatten(), a.flatten(1)[:, places].flatten())
        else:
            seen = rows.view_of(number)
            at = seen.nonzero(as_tuple=True)
            entry = (at[0], seen[at].long() - 1, a[at])
        row, column, value = entry
        self.entries.append((row + self.rows, column, value))

    def matrix(self, rows: int) -> Matrix:
        """Everything added, as one matrix (rows, columns)."""
        if not self.entries:
            return Matrix.of_dense(torch.zeros(rows, self.columns, dtype=torch.float64, device=self.device))
        row, column, value = (torch.cat(parts) for parts in zip(*self.entries, strict=True))
        return Matrix.of(row, column, value, (rows, self.columns))
