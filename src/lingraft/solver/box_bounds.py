"""CROWN over many boxes of the input at once, for networks with few inputs.

What `bounds.py` does for one region is done for a batch of them: intervals, then, for each neuron of each box that
these leave open, a row of its own on the way back. Rows of all boxes pass through the linear nodes together. Where that
is far more work than going forward once (`forward.py`), forms that go forward bound the neurons instead; where the
rows of one box are so many that they take much longer than calls do, the network is unfolded for each box by itself.
Products have planes of their own in every box, and what they are written with is not looked at; functions of them are
bounded by quadratic ones (`quadratic.py`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.bounds import SiteBounds, bound_sites, lines_of
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.crown import AtProduct, AtSite, Watch, neuron_rows, pass_back, row_products, row_width
from lingraft.solver.forward import Forward
from lingraft.solver.intervals import UNDERFLOW, through_linear, through_site
from lingraft.solver.network import Network, device_of
from lingraft.solver.nodes import Input, Product, Site
from lingraft.solver.products import Planes, planes, through_product
from lingraft.solver.quadratic import Curves, Form, Quadratics, total_size
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes, allowance
from lingraft.solver.rows import Rows, select
from lingraft.solver.unfolding import FREE, Moved

#: Coefficients handled at once: half a megabyte in float64, so that a core's cache holds the few tensors in use.
CHUNK = 60_000

#: Bounds as near to each other as this, as a share of themselves, are good enough.
NEAR = 1e-9

#: Rows of single neurons may take so many times as many products as forms that go forward: they bound so much better
#: that with a factor of 4 ACAS Xu took up to 15 times as long.
DEARER = 100.0


class Functions(NamedTuple):
    """Below L functions on each of B boxes: least values (B, L), with rounding paid for, and rows p (B, L, n) such that

    on the box every function exceeds its least value by at least p·x less the minimum of that. Where the network has
    products, they come from quadratic functions, as many.
    """

    below: Tensor
    rows: Tensor
    curves: Quadratics | None


class BoxBounds:
    """Bounds of every site over B boxes from `lower` to `upper` (B, n), flat in the inner order, float64.

    `found` is as for one region, but every tensor has the boxes in front. With `dearer` 0, no neuron has a row,
    no box is unfolded, and products have planes only. Nodes behind `last` are not looked at.
    """

    def __init__(
        self,
        network: Network,
        lower: Tensor,
        upper: Tensor,
        sizes: Sizes,
        budget: Budget = UNLIMITED,
        dearer: float = DEARER,
        last: int | None = None,
    ):
        self.network, self.budget, self.dearer = network, budget, dearer
        shape = network.nodes[0].shape
        low, high = lower.view(-1, *shape), upper.view(-1, *shape)
        center = (high + low) / 2
        radius = torch.maximum(high - center, center - low)  # covers the box whatever was rounded
        self.found = found = SiteBounds({}, {}, center, radius, (low, high), sizes.share, [], [])
        #: of each site and product, value by value: box (P,), number (P,), how far inputs that move move it (P, m)
        self.moved: dict[int, list[tuple[Tensor, Tensor, Tensor]]] = {}
        #: of each box by itself, if that is done: bounds of every site, and how far inputs move taps
        self.alone: list[tuple[SiteBounds, dict[int, Moved]]] = []
        if dearer and _many_rows(network, low[:1], high[:1], sizes, budget):
            for ends in zip(network.outside(low), network.outside(high), strict=True):
                known = bound_sites(network, Region(*ends), budget, sizes=sizes)
                assert known.unfolding is not None
                self.alone.append((known, known.unfolding.moved()))
                known.unfolding = None  # it is large
        self.forward = Forward(network, center, radius)
        self.planes: dict[int, Planes] = {}
        #: what passes rows over products back, once all nodes are known
        self.curves: Curves | None = None
        forms: dict[int, tuple[Form, Form]] = {}
        squares = {j for node in network.nodes if isinstance(node, Product) for j in node.inputs[:2]}
        values: list[tuple[Tensor, Tensor]] = []
        for i, node in enumerate(network.nodes if last is None else network.nodes[: last + 1]):
            budget.check_time()
            inputs = [values[j] for j in node.inputs]
            if isinstance(node, Input):
                values.append((low, high))
            elif isinstance(node, Site):
                below, above = (t.clone(memory_format=torch.contiguous_format) for t in inputs[0])
                found.bounds[i] = below, above
                if self.alone:
                    self.moved[i] = self._known(i, below.flatten(1), above.flatten(1))
                    found.lines[i] = lines_of(node, below, above)
                elif i not in squares:
                    open_ = found.unstable(network, i).expand_as(below) & _wide(below, above)
                    self.moved[i] = self._sharpen(node.inputs[0], open_, below, above)
                    found.lines[i] = lines_of(node, below, above)
                values.append(through_site(node, below, above))
            elif isinstance(node, Product):
                (first, second), forms[i] = self._factors(i, node, values)
                self.planes[i] = planes(first, second)
                values.append(through_product(first, second, inputs[2:]))
            else:
                values.append(through_linear(node, inputs))
            found.sizes.append(sizes.of(i, found.sizes, found))
            found.losses.append(sizes.share * found.sizes[i] + UNDERFLOW)
        self.values = values
        # products by what is all but fixed are as good as linear: their planes lose next to nothing
        if dearer and any(self.moved[i] for i in forms):
            self.curves = Curves(network, found, self.forward.moving, forms)

    def __len__(self) -> int:
        return len(self.found.center)

    @property
    def radius(self) -> Tensor:
        """Half widths (B, n) of the boxes."""
        return self.found.radius.flatten(1)

    def _factors(
        self, i: int, node: Product, values: list[tuple[Tensor, Tensor]]
    ) -> tuple[list[tuple[Tensor, Tensor]], tuple[Form, Form]]:
        """Bounds (B, *shape) of both factors of a product, sharpened, and their forms."""
        places = node.factors(self.network.nodes)
        wide = _wide(*values[places[0]]) & _wide(*values[places[1]])  # else the product is a line
        bounds, forms, self.moved[i] = [], [], []
        for j in places:
            below, above = (t.clone(memory_format=torch.contiguous_format) for t in values[j])
            form = Form.of_intervals(below.flatten(1), above.flatten(1), len(self.forward.moving))
            self.moved[i] += self._sharpen(j, wide, below, above, form)
            bounds.append((below, above))
            forms.append(form)
        return bounds, (forms[0], forms[1])

    def _known(self, i: int, lower: Tensor, upper: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Take over what is known of site `i` of each box by itself, in place, flat (B, size); what moves its taps."""
        moved = []
        for b, (known, by) in enumerate(self.alone):
            lower[b] = torch.maximum(lower[b], known.bounds[i][0].flatten())
            upper[b] = torch.maximum(torch.minimum(upper[b], known.bounds[i][1].flatten()), lower[b])
            if i in by:
                taps, far = by[i]
                moved.append((torch.full_like(taps, b), taps, far[:, self.forward.moving]))
        return moved

    def _sharpen(
        self, start: int, open_: Tensor, lower: Tensor, upper: Tensor, form: Form | None = None
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Bound the `open_` values of a node better than by intervals, in place, all (B, *shape); what moves them.

        What is found goes into their `form`, too.
        """
        box, neuron = open_.flatten(1).nonzero(as_tuple=True)
        if not len(box):
            return []
        lower, upper = lower.view(len(self), -1), upper.view(len(self), -1)
        dear = 2 * len(box) * row_products(self.network, start, self.budget)
        if dear > self.dearer * len(self) * self.forward.price(start):
            self.forward.pass_to(start, self.found.lines, self.planes)
            low, high = (end.flatten(1) for end in self.forward.bounds(start))
            lower.copy_(torch.maximum(lower, low))
            upper.copy_(torch.maximum(torch.minimum(upper, high), lower))
            if form is not None:
                below, above = (end.flatten(2)[box, :, neuron] for end in self.forward.pairs[start])
                form.put(box, neuron, below[:, 0], below[:, 1:], above[:, 0], above[:, 1:])
            return [(box, neuron, self.forward.moved(start, box, neuron))]
        moved, reach = [], self.radius[:, self.forward.moving]
        for some in self._chunks(start, len(box)):
            place = box[some], neuron[some]
            pending, constant = self._rows_of(start, place[1])
            both = {j: rows.and_negated() for j, rows in pending.items()}
            bound, rows = self._below(both, torch.cat([constant, -constant]), place[0].repeat(2))
            low, high = (bound - self.found.losses[start]).chunk(2)
            lower[place] = torch.maximum(lower[place], low)
            upper[place] = torch.maximum(torch.minimum(upper[place], -high), lower[place])
            one, other = (rows[:, self.forward.moving].unflatten(0, (2, -1)) * reach[place[0]]).unbind()
            moved.append((*place, one.abs() + other.abs()))
            if form is not None:
                form.put(*place, low + one.abs().sum(1), one, -high - other.abs().sum(1), -other)
        return moved

    def _rows_of(self, start: int, values: Tensor) -> tuple[dict[int, Rows], Tensor]:
        """Rows of single values (P,) of node `start`, and their constants (P,); products are left to their planes."""
        node = self.network.nodes[start]
        if isinstance(node, Product):
            rows = select(values, node.shape, torch.float64)
            return {start: rows}, rows.coefficients.new_zeros(len(rows))
        return neuron_rows(self.network, start, values)

    def _below(
        self, pending: dict[int, Rows], constant: Tensor, box: Tensor, watch: Watch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Minima (R,) of rows, each over its `box` (R,), less what rounding may have added; and them over the input.

        `watch` sees them on their way.
        """
        found, lost = self.found, torch.zeros_like(constant)

        def at_node(i: int, rows: Rows) -> None:
            lost.add_(total_size(rows), alpha=found.losses[i])
            if watch is not None:
                watch(i, rows)

        at_site, at_product = _relaxed(found.lines, box), _between(self.network, self.planes, box)
        rows, constant = pass_back(self.network, pending, constant, at_site, at_node, self.budget, at_product)
        p = rows.whole(self.network.nodes[0].shape).coefficients.flatten(1)
        center, radius = (t.flatten(1).index_select(0, box) for t in (found.center, found.radius))
        return constant + (p * center - p.abs() * radius).sum(1) - lost, p

    def functions(self, node: int, spec: Tensor, offset: Tensor, wanted: Tensor | None = None) -> "Functions":
        """Below spec·values + offset, where spec (L, size) is about the values of a vector `node`.

        Those that are not `wanted` (B, L) are 0.
        """
        # properties ask for the same function in several of their parts
        both, same = torch.cat([spec, offset[:, None]], 1).unique(dim=0, return_inverse=True)
        spec, offset = both[:, :-1], both[:, -1]
        less = offset - allowance(self.found.losses[: node + 1], self.found.sizes[node], spec, offset)
        asked = torch.ones(len(self), len(spec), dtype=torch.bool, device=spec.device)
        if wanted is not None:
            asked = torch.zeros_like(asked, dtype=spec.dtype).index_add_(1, same, wanted.to(spec.dtype)) > 0
        box, which = asked.nonzero(as_tuple=True)
        bounds, rows, curves = [], [], []
        for some in self._chunks(node, len(box)):
            if self.curves is None:
                bound, row = self._below({node: Rows(spec[which[some]])}, less[which[some]], box[some])
            else:
                curve = self.curves.below(node, spec[which[some]], less[which[some]], box[some], self.budget)
                bound, row, _ = curve.tangents()
                row = self.unscaled(row, box[some])
                curves.append(curve)
            bounds.append(bound)
            rows.append(row)

        def placed(parts: list[Tensor]) -> Tensor:
            found = torch.cat(parts)
            whole = found.new_zeros(*asked.shape, *found.shape[1:])
            whole[box, which] = found
            return whole[:, same]

        known = Quadratics(*(placed(list(parts)) for parts in zip(*curves, strict=True))) if curves else None
        return Functions(placed(bounds), placed(rows), known)

    def unscaled(self, rows: Tensor, box: Tensor) -> Tensor:
        """Rows (R, m) over the inputs that move, in units of the radius of a `box` (R,), as rows over all (R, n)."""
        radius = self.radius.index_select(0, box)
        over = torch.zeros_like(radius)
        over[:, self.forward.moving] = rows
        return torch.where(radius > 0, over / radius, 0.0)

    def intervals(self, node: int, spec: Tensor, offset: Tensor) -> Tensor:
        """Lower bounds (B, L) of spec·values + offset from the intervals of the values of a vector `node`."""
        low, high = self.values[node]
        paid = allowance(self.found.losses[: node + 1], self.found.sizes[node], spec, offset)
        return low @ spec.clamp(min=0).T + high @ spec.clamp(max=0).T + offset - paid

    def harm(self, node: int, rows: Tensor, box: Tensor) -> Tensor:
        """What relaxations take from rows (R, size) over `node`, each in its `box` (R,), as each input's part (B, n).

        A neuron, or a product, takes its gap times the coefficient that the row has there. Its gap is due to the inputs
        by as much as each moves it: cut in half, an input moves it half as far. Where functions bend down, that is due
        to the inputs themselves. A single input that moves has all of the harm, of which nothing else is said then: 1.
        """
        if len(self.forward.moving) == 1:
            return torch.zeros_like(self.radius).index_fill_(1, self.forward.moving, 1.0)
        gaps = {i: part.gap for i, part in self.planes.items()}
        for i in self.found.lines:
            site = self.network.nodes[i]
            assert isinstance(site, Site)
            gaps[i] = site.activation.gap(*self.found.bounds[i])
        felt = {i: torch.zeros_like(gap) for i, gap in gaps.items()}

        columns = 1 if self.curves is None else self.curves.columns

        def watch(i: int, rows: Rows) -> None:
            if i in felt:
                coefficients = rows.whole(felt[i].shape[1:]).coefficients.abs()
                felt[i].index_add_(0, box[some], coefficients.unflatten(0, (-1, columns)).sum(1))

        harm = self.radius.new_zeros(len(self), len(self.forward.moving))
        for some in self._chunks(node, len(rows)):
            none = rows.new_zeros(len(rows[some]))
            if self.curves is None:
                self._below({node: Rows(rows[some])}, none, box[some], watch)
            else:
                _, _, delta = self.curves.below(node, rows[some], none, box[some], self.budget, watch).tangents()
                harm.index_add_(0, box[some], delta)
        for i, parts in self.moved.items():
            taken = (felt[i] * gaps[i]).flatten(1)
            for which, neuron, moved in parts:
                share = moved / moved.sum(1, keepdim=True).clamp(min=torch.finfo(moved.dtype).tiny)
                harm.index_add_(0, which, share * taken[which, neuron][:, None])
        return torch.zeros_like(self.radius).index_copy_(1, self.forward.moving, harm)

    def _chunks(self, start: int, count: int) -> Iterator[slice]:
        """Cut so many rows over node `start` into parts that stay within CHUNK, watching the time."""
        width = row_width(self.network, start, self.budget) * (1 if self.curves is None else self.curves.columns)
        self.budget.allow(64 * width)
        step = max(1, CHUNK // width)
        for first in range(0, count, step):
            self.budget.check_time()
            yield slice(first, min(first + step, count))


def _wide(lower: Tensor, upper: Tensor) -> Tensor:
    """Which bounds are worth sharpening."""
    return upper - lower > NEAR * torch.maximum(lower.abs(), upper.abs())


def _many_rows(network: Network, lower: Tensor, upper: Tensor, sizes: Sizes, budget: Budget) -> bool:
    """Whether the rows that intervals leave open on a box (1, *shape) take longer than unfolding may in any case."""

    def cost(site: int, rows: float) -> float:
        return 2 * rows * row_products(network, network.nodes[site].inputs[0], budget)

    if device_of(network).type != "cpu" or any(isinstance(node, Product) for node in network.nodes):
        return False
    if sum(cost(i, network.nodes[i].size) for i in network.sites) <= FREE:
        return False
    region = Region(network.outside(lower)[0], network.outside(upper)[0])
    found = bound_sites(network, region, budget, "intervals", sizes)
    return sum(cost(i, float(found.unstable(network, i).sum())) for i in network.sites) > FREE


def _relaxed(lines: dict[int, Lines], box: Tensor) -> AtSite:
    """`crown.relaxed`, of rows that each have the lines of their own box (R,): below where a > 0, above where a < 0."""

    def at_site(i: int, rows: Rows) -> tuple[Rows, Tensor]:
        a = rows.whole(lines[i].lower_slope.shape[1:]).coefficients
        positive, negative = a.clamp(min=0), a.clamp(max=0)
        ls, li, us, ui = (t.index_select(0, box) for t in lines[i])
        constant = (li * positive).add_(ui * negative).flatten(1).sum(1)
        return Rows(positive.mul_(ls).add_(negative.mul_(us))), constant

    return at_site


def _between(network: Network, planes: dict[int, Planes], box: Tensor) -> AtProduct:
    """Rows over products become rows over their factors, by the planes of their own box (R,) below them."""

    def at_product(i: int, rows: Rows) -> tuple[dict[int, Rows], Tensor]:
        node = network.nodes[i]
        assert isinstance(node, Product)
        a = rows.whole(node.shape).coefficients
        of_first, of_second, shift, gap = (t.index_select(0, box) for t in planes[i])
        constant = (a * shift - a.abs() * gap).flatten(1).sum(1)
        places = (*node.factors(network.nodes), *node.inputs[2:])
        return dict(zip(places, (Rows(a * of_first), Rows(a * of_second), Rows(a), Rows(a)), strict=True)), constant

    return at_product
