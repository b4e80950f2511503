"""CROWN over many boxes of the input at once, for networks with few inputs.

What `bounds.py` does for one region is done for a batch of them: intervals, then, for each neuron of each box that
these leave open, a row of its own on the way back. Rows of all boxes pass through the linear nodes together.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.bounds import SiteBounds, lines_of
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.crown import AtSite, Watch, neuron_rows, pass_back, row_width
from lingraft.solver.intervals import through_linear, through_site
from lingraft.solver.network import Network
from lingraft.solver.nodes import Input, Site
from lingraft.solver.rounding import Sizes, allowance
from lingraft.solver.rows import Rows

#: Coefficients handled at once: half a megabyte in float64, so that a core's cache holds the few tensors in use.
CHUNK = 60_000


class BoxBounds:
    """Bounds of every site over B boxes from `lower` to `upper` (B, n), flat in the inner order, float64.

    `found` is as for one region, but every tensor has the boxes in front.
    """

    def __init__(self, network: Network, lower: Tensor, upper: Tensor, sizes: Sizes, budget: Budget = UNLIMITED):
        self.network, self.budget = network, budget
        shape = network.nodes[0].shape
        low, high = lower.view(-1, *shape), upper.view(-1, *shape)
        center = (high + low) / 2
        radius = torch.maximum(high - center, center - low)  # covers the box whatever was rounded
        self.found = found = SiteBounds({}, {}, center, radius, (low, high), sizes.share, [], [])
        #: of each site, neuron by neuron: box (P,), neuron (P,), how far each input moves it (P, n)
        self.moved: dict[int, list[tuple[Tensor, Tensor, Tensor]]] = {}
        values: list[tuple[Tensor, Tensor]] = []
        for i, node in enumerate(network.nodes):
            budget.check_time()
            inputs = [values[j] for j in node.inputs]
            if isinstance(node, Input):
                values.append((low, high))
            elif isinstance(node, Site):
                below, above = (t.clone(memory_format=torch.contiguous_format) for t in inputs[0])
                found.bounds[i] = below, above
                self._sharpen(i, below.flatten(1), above.flatten(1))
                found.lines[i] = lines_of(node, below, above)
                values.append(through_site(node, below, above))
            else:
                values.append(through_linear(node, inputs))
            found.sizes.append(sizes.of(i, found.sizes, found))
            found.losses.append(sizes.share * found.sizes[i])
        self.values = values

    def __len__(self) -> int:
        return len(self.found.center)

    @property
    def radius(self) -> Tensor:
        """Half widths (B, n) of the boxes."""
        return self.found.radius.flatten(1)

    def _sharpen(self, i: int, lower: Tensor, upper: Tensor) -> None:
        """Bound the neurons of site `i` that intervals leave open by CROWN, in place; flat bounds (B, size)."""
        open_ = self.found.unstable(self.network, i).expand_as(self.found.bounds[i][0])
        box, neuron = open_.flatten(1).nonzero(as_tuple=True)
        start, self.moved[i] = self.network.nodes[i].inputs[0], []
        for some in self._chunks(start, len(box)):
            place = box[some], neuron[some]
            pending, constant = neuron_rows(self.network, start, place[1])
            both = {j: rows.and_negated() for j, rows in pending.items()}
            bound, rows = self._below(both, torch.cat([constant, -constant]), place[0].repeat(2))
            (low, high), (one, other) = (bound - self.found.losses[start]).chunk(2), rows.abs().chunk(2)
            lower[place] = torch.maximum(lower[place], low)
            upper[place] = torch.maximum(torch.minimum(upper[place], -high), lower[place])
            self.moved[i].append((*place, (one + other) * self.radius.index_select(0, place[0])))

    def _below(
        self, pending: dict[int, Rows], constant: Tensor, box: Tensor, watch: Watch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Minima (R,) of rows, each over its `box` (R,), less what rounding may have added; and them over the input.

        `watch` sees them on their way.
        """
        found, lost = self.found, torch.zeros_like(constant)

        def at_node(i: int, rows: Rows) -> None:
            lost.add_(rows.coefficients.flatten(1).abs().sum(1), alpha=found.losses[i])
            if watch is not None:
                watch(i, rows)

        rows, constant = pass_back(self.network, pending, constant, _relaxed(found.lines, box), at_node, self.budget)
        p = rows.whole(self.network.nodes[0].shape).coefficients.flatten(1)
        center, radius = (t.flatten(1).index_select(0, box) for t in (found.center, found.radius))
        return constant + (p * center - p.abs() * radius).sum(1) - lost, p

    def functions(self, node: int, spec: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        """Of spec·values + offset, where spec (L, size) is about the values of a vector `node`, below which they lie:

        lower bounds (B, L) with rounding paid for, and rows p (B, L, n) such that on the box every function exceeds its
        bound by at least p·x less the minimum of that.
        """
        count = len(spec)
        bounds, rows = [], []
        for some in self._chunks(node, len(self) * count):
            number = torch.arange(some.start, some.stop, device=spec.device)
            which = number % count
            bound, row = self._below({node: Rows(spec[which])}, offset[which], number // count)
            bounds.append(bound)
            rows.append(row)
        paid = allowance(self.found.losses[: node + 1], self.found.sizes[node], spec, offset)
        return torch.cat(bounds).view(-1, count) - paid, torch.cat(rows).view(len(self), count, -1)

    def intervals(self, node: int, spec: Tensor, offset: Tensor) -> Tensor:
        """Lower bounds (B, L) of spec·values + offset from the intervals of the values of a vector `node`."""
        low, high = self.values[node]
        paid = allowance(self.found.losses[: node + 1], self.found.sizes[node], spec, offset)
        return low @ spec.clamp(min=0).T + high @ spec.clamp(max=0).T + offset - paid

    def harm(self, node: int, rows: Tensor, box: Tensor) -> Tensor:
        """What relaxations take from rows (R, size) over `node`, each in its `box` (R,), as each input's part (B, n).

        A neuron takes its gap times the coefficient that the row has there. Its gap is due to the inputs by as much as
        each moves it: cut in half, an input moves it half as far.
        """
        felt = {i: torch.zeros_like(lower) for i, (lower, _) in self.found.bounds.items()}

        def watch(i: int, rows: Rows) -> None:
            if i in felt:
                felt[i].index_add_(0, box[some], rows.whole(felt[i].shape[1:]).coefficients.abs())

        for some in self._chunks(node, len(rows)):
            self._below({node: Rows(rows[some])}, rows.new_zeros(len(rows[some])), box[some], watch)
        harm = torch.zeros_like(self.radius)
        for i, parts in self.moved.items():
            site = self.network.nodes[i]
            assert isinstance(site, Site)
            taken = (felt[i] * site.activation.gap(*self.found.bounds[i])).flatten(1)
            for which, neuron, moved in parts:
                share = moved / moved.sum(1, keepdim=True).clamp(min=torch.finfo(moved.dtype).tiny)
                harm.index_add_(0, which, share * taken[which, neuron][:, None])
        return harm

    def _chunks(self, start: int, count: int) -> Iterator[slice]:
        """Cut so many rows over node `start` into parts that stay within CHUNK, watching the time."""
        width = row_width(self.network, start, self.budget)
        self.budget.allow(64 * width)
        step = max(1, CHUNK // width)
        for first in range(0, count, step):
            self.budget.check_time()
            yield slice(first, min(first + step, count))


def _relaxed(lines: dict[int, Lines], box: Tensor) -> AtSite:
    """`crown.relaxed`, of rows that each have the lines of their own box (R,): below where a > 0, above where a < 0."""

    def at_site(i: int, rows: Rows) -> tuple[Rows, Tensor]:
        a = rows.whole(lines[i].lower_slope.shape[1:]).coefficients
        positive, negative = a.clamp(min=0), a.clamp(max=0)
        ls, li, us, ui = (t.index_select(0, box) for t in lines[i])
        constant = (li * positive).add_(ui * negative).flatten(1).sum(1)
        return Rows(positive.mul_(ls).add_(negative.mul_(us))), constant

    return at_site
