"""Collapse a network over a region, exactly, to its unstable neurons.

Over a region every neuron that is grafted, always on or always off is linear. What is left are the unstable ones, the
*taps*. For the taps of site k, with h = act(z) of the taps before it,

    z_k = P_k x + Q_k h + r_k            margins = p x + q h + c

Nothing is approximated here: the relaxation only enters through the bounds of the taps (`crown.py`) and in `dual.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.verification.crown import chunks, crown_bounds, pass_back, row_width
from lingraft.verification.intervals import through_linear, through_site
from lingraft.verification.matrix import Matrix
from lingraft.verification.network import Network
from lingraft.verification.nodes import Input, Site
from lingraft.verification.relaxation import Lines, relax
from lingraft.verification.rows import Rows, select


@dataclass
class Taps:
    """The unstable neurons of one site: `index` (U,) into the site, numbers `first` to `last` among all taps."""

    site: int
    kind: str
    index: Tensor
    first: int
    last: int
    P: Matrix
    Q: Matrix
    r: Tensor


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
    #: pre-activation bounds of every site, its shape: what `lingraft.bounds` gives
    bounds: dict[int, tuple[Tensor, Tensor]]

    @property
    def count(self) -> int:
        """Number of taps."""
        return len(self.lower)


def collapse(network: Network, lower: Tensor, upper: Tensor, spec: Tensor, offset: Tensor) -> Collapsed:
    """Collapse over the box [lower, upper] (input_shape, float64) for margins spec·logits + offset (L rows)."""
    return _Collapse(network, lower, upper).finish(spec, offset)


class _Collapse:
    """One pass from the image to the logits: bounds of a site first, then the rows of what stayed unstable."""

    def __init__(self, network: Network, lower: Tensor, upper: Tensor):
        self.network = network
        box = network.inside(lower[None])[0], network.inside(upper[None])[0]
        self.center, self.radius = (box[1] + box[0]) / 2, (box[1] - box[0]) / 2
        self.lines: dict[int, Lines] = {}
        #: slope and intercept of the linear neurons (0 for taps), and the 1-based number of each tap (0 for others)
        self.linear: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.taps: list[Taps] = []
        self.bounds: dict[int, tuple[Tensor, Tensor]] = {}
        values: list[tuple[Tensor, Tensor]] = []
        for i, node in enumerate(network.nodes):
            inputs = [values[j] for j in node.inputs]
            if isinstance(node, Input):
                values.append((box[0][None], box[1][None]))
            elif isinstance(node, Site):
                self._site(i, node, inputs[0][0][0], inputs[0][1][0])
                low, high = self.bounds[i]
                values.append(through_site(node, low[None], high[None]))
            else:
                values.append(through_linear(node, inputs))

    def _site(self, i: int, site: Site, lower: Tensor, upper: Tensor) -> None:
        """Bound the neurons that intervals leave open, then keep what stays unstable as taps."""
        lower, upper = lower.clone(), upper.clone()
        open_ = _unstable(site, lower, upper).flatten().nonzero().flatten()
        if len(open_):
            low, high = crown_bounds(self.network, site.inputs[0], open_, self.lines, self.center, self.radius)
            flat_low, flat_high = lower.view(-1), upper.view(-1)
            flat_low[open_] = torch.maximum(flat_low[open_], low)
            flat_high[open_] = torch.maximum(torch.minimum(flat_high[open_], high), flat_low[open_])
        self.bounds[i] = lower, upper
        unstable = _unstable(site, lower, upper)
        lines = relax(site.kind, lower, upper)
        self.lines[i] = Lines(
            torch.where(site.grafted, site.slope, lines.lower_slope),
            torch.where(site.grafted, site.intercept, lines.lower_intercept),
            torch.where(site.grafted, site.slope, lines.upper_slope),
            torch.where(site.grafted, site.intercept, lines.upper_intercept),
        )
        index = unstable.flatten().nonzero().flatten()
        first = self.taps[-1].last if self.taps else 0
        number = torch.zeros(site.size, dtype=torch.float64, device=index.device)
        number[index] = torch.arange(first + 1, first + 1 + len(index), dtype=torch.float64, device=index.device)
        self.linear[i] = (
            torch.where(unstable, 0.0, self.lines[i].lower_slope),
            torch.where(unstable, 0.0, self.lines[i].lower_intercept),
            number.view(site.shape),
        )
        P, Q, r = self._rows(site.inputs[0], index, first)
        self.taps.append(Taps(i, site.kind, index, first, first + len(index), P, Q, r))

    def _rows(self, start: int, index: Tensor, before: int) -> tuple[Matrix, Matrix, Tensor]:
        """P, Q and r of the chosen neurons of node `start`, with `before` taps before them."""
        P, Q = _Pieces(self.center.numel()), _Pieces(before)
        constants = []
        if len(index):
            for some in chunks(self.network, start, index, 4 * row_width(self.network, start)):
                constants.append(self._tap(start, select(some, self.network.nodes[start].shape, torch.float64), P, Q))
        constant = torch.cat(constants) if constants else index.new_zeros(0, dtype=torch.float64)
        return P.matrix(len(index)), Q.matrix(len(index)), constant

    def _tap(self, start: int, rows: Rows, P: "_Pieces", Q: "_Pieces") -> Tensor:
        """Pass rows back, through linear neurons to the image and to the taps on the way; gives the constants."""

        def at_site(i: int, here: Rows) -> tuple[Rows, Tensor]:
            slope, intercept, number = self.linear[i]
            a = here.coefficients
            Q.add(here, number)
            constant = (a * here.view_of(intercept)).flatten(1).sum(1)
            return Rows(a * here.view_of(slope), here.origin), constant

        final, constant = pass_back(self.network, start, rows, at_site)
        every = torch.arange(1, self.center.numel() + 1, dtype=torch.float64, device=self.center.device)
        P.add(final, every.view(self.center.shape))
        P.rows += len(rows)
        Q.rows += len(rows)
        return constant

    def finish(self, spec: Tensor, offset: Tensor) -> Collapsed:
        """The margins' rows, and everything put together."""
        total = self.taps[-1].last if self.taps else 0
        p, q = _Pieces(self.center.numel()), _Pieces(total)
        constant = self._tap(len(self.network.nodes) - 1, Rows(spec), p, q)
        none = self.center.new_zeros(0)
        bounds = [(low.flatten()[t.index], high.flatten()[t.index]) for t in self.taps for low, high in [self.bounds[t.site]]]
        return Collapsed(
            self.taps,
            torch.cat([none, *[low for low, _ in bounds]]),
            torch.cat([none, *[high for _, high in bounds]]),
            p.matrix(len(spec)).dense().t().contiguous(),
            q.matrix(len(spec)).dense().t().contiguous(),
            constant + offset,
            self.center.flatten(),
            self.radius.flatten(),
            self.bounds,
        )


def _unstable(site: Site, lower: Tensor, upper: Tensor) -> Tensor:
    """Neurons that are neither grafted nor linear on their interval; a smooth activation is never linear."""
    if site.kind == "relu":
        return ~site.grafted & (lower < 0) & (upper > 0)
    return ~site.grafted


class _Pieces:
    """Collects the coefficients that rows have on numbered places, dense or as entries, into one Matrix."""

    def __init__(self, columns: int):
        self.columns = columns
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
            return Matrix.of_dense(torch.zeros(rows, self.columns, dtype=torch.float64))
        row, column, value = (torch.cat(parts) for parts in zip(*self.entries, strict=True))
        return Matrix.of(row, column, value, (rows, self.columns))


