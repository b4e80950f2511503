"""Lower bounds of the margins over domains, from multipliers: the verifier's inner loop.

A domain is the region with some taps restricted to one side of a split. Domains are columns: every tensor over taps is
(T, B). The region is scaled to |x| ≤ 1. From the last site to the first, with q the coefficient on h = act(z),

    λ = α·[q]₊ + s·[q]₋ − σ·β       (lower line slope α, upper line s·z + t; σ = ±1 where split, else 0)
    c += [q]₋·t + λ·r + …            p += λP        q += λQ
    bound = c − ‖p‖₁

The line below a smooth tap, and the one above it, are chosen by α as well (`relaxation.py`).
Any α ∈ [0, 1] and β ≥ 0 (any β in smooth networks) give a sound bound (α,β-CROWN, Xu et al. 2021, Wang et al. 2021).
Taps of the first sites may have a second upper bound h ≤ G·x + g (`facets.py`). Where q < 0, a share of it is used, a
multiplier like α: share·(G·x + g) + (1 − share)·(s·z + t). Proofs have one number for both, since only q > 0 has a use
for α. Here they are two, as q may change its sign: what was good as a slope says nothing about the share.
The gradient has a closed form: with the minimizer x* = −sign(p), z* and h* follow forward, and ∂bound/∂λ = z*, so
autograd is not needed.
In float64 what rounding may have added, Σ |λ| times the loss of each tap's row, is taken off: a large β, as the linear
programs of `leaf.py` give it, makes large what is left where a row cancels.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.model.activations import Lines, activation
from lingraft.model.activations.relu import relax_relu
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.collapse import Collapsed
from lingraft.solver.columns import columns_of
from lingraft.solver.matrix import Matrix, Stack
from lingraft.solver.relaxation import Relaxation, SmoothLines, at_alpha

#: In proofs, α is a multiple of one over this, so that certificates are small.
STEPS_OF_ALPHA = 255

#: A smooth tap is not split any further on an interval shorter than this.
SMALLEST = 1e-4


@dataclass
class Domains:
    """A batch of domains, one a column: bounds of the taps (T, B), splits, multipliers, and the margin each is about.

    `split` is +1 where the lower bound of the tap is a split (z ≥ lower), −1 where the upper one is (z ≤ upper). A
    smooth tap may be split on both sides; `split` is then the last one, and β < 0 stands for the other side. `node` is
    the number of the domain in the tree of splits. `share` (T, B) is how much of its facet a tap uses, if it has one.
    """

    margin: Tensor
    lower: Tensor
    upper: Tensor
    split: Tensor
    alpha: Tensor
    share: Tensor
    beta: Tensor
    node: Tensor

    def __len__(self) -> int:
        return len(self.margin)

    def select(self, columns: Tensor) -> "Domains":
        """A copy of some of the domains."""
        return Domains(*(columns_of(getattr(self, f.name), columns) for f in fields(self)))

    def put(self, columns: Tensor, domains: "Domains") -> None:
        """Write other domains (K) over some of these, in place."""
        for f in fields(self):
            mine = getattr(self, f.name)
            mine.scatter_(-1, columns.expand(*mine.shape[:-1], len(columns)), getattr(domains, f.name))

    def to(self, dtype: torch.dtype) -> "Domains":
        """Bounds and multipliers in another precision."""
        names = ("lower", "upper", "alpha", "share", "beta")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})

    def exactly(self) -> "Domains":
        """In float64, with α as proofs have it."""
        double = self.to(torch.float64)
        double.alpha = (double.alpha * STEPS_OF_ALPHA).round() / STEPS_OF_ALPHA
        double.share = (double.share * STEPS_OF_ALPHA).round() / STEPS_OF_ALPHA
        return double

    @staticmethod
    def join(parts: "list[Domains]") -> "Domains":
        """All domains of several batches."""
        return Domains(*(torch.cat([getattr(d, f.name) for d in parts], dim=-1) for f in fields(Domains)))


def root_domains(collapsed: Collapsed, dtype: torch.dtype) -> Domains:
    """The whole region, once for every margin."""
    count = collapsed.c.shape[0]
    lower, upper = (t[:, None].repeat(1, count) for t in outward(collapsed.lower, collapsed.upper, dtype))
    alpha = relax_relu(lower, upper).lower_slope
    for taps in collapsed.taps:
        if activation(taps.kind).pieces is None:
            alpha[taps.first : taps.last] = 0.5  # lines that are close together in the middle
    split = torch.zeros_like(lower, dtype=torch.int8)
    margin = torch.arange(count, device=lower.device)
    zero = torch.zeros_like(lower)
    return Domains(margin, lower, upper, split, alpha, torch.ones_like(lower), zero, torch.zeros_like(margin))


def outward(lower: Tensor, upper: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Float64 bounds in `dtype`, widened by more than was rounded away in computing and in converting them.

    So crossing bounds mean an empty domain, not an accident of the last digits.
    """
    slack = 1e-9 * torch.maximum(lower.abs(), upper.abs()).clamp(min=1)
    low, high = (lower - slack).to(dtype), (upper + slack).to(dtype)
    infinity = torch.full_like(low, torch.inf)
    return torch.nextafter(low, -infinity), torch.nextafter(high, infinity)


def edge_of(push: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The constant (B,) of the terms −σβ·(z − side), side being lower where σβ > 0 and upper where σβ < 0."""
    return (push * torch.where(push > 0, lower, upper)).sum(0)


class Relaxed(NamedTuple):
    """Lines of the taps (T, B), and how much of the facets (F, B) of the first ones is used where q < 0."""

    lower_slope: Tensor
    lower_intercept: Tensor
    upper_slope: Tensor
    upper_intercept: Tensor
    share: Tensor

    @classmethod
    def alone(cls, lines: Lines) -> "Relaxed":
        """Lines without facets."""
        return cls(*lines, share=lines.lower_slope[:0])


class Row(NamedTuple):
    """Linear functions q·h + p·x + c: q (T, B), p (n, B), c (B,); one column stands for all where B is 1."""

    q: Tensor
    p: Tensor
    c: Tensor


class Facets(NamedTuple):
    """h ≤ G·x + g over |x| ≤ 1, for those of the first F taps that are `used` (F, 1): G (F, n), g (F, 1).

    Where the site whose first tap is k has rows `on_taps[k]` (U, k), these times h of the taps before are added.
    """

    G: Stack
    g: Tensor
    used: Tensor
    on_taps: Mapping[int, Matrix] = MappingProxyType({})


@dataclass
class Evaluation:
    """Bounds (B,) and what the branching looks at: q (T, B), the lines, and the minimizers (B, n), real pixels."""

    bound: Tensor
    q: Tensor
    lines: Relaxed
    minimizer: Tensor


def _together(taps: list[tuple[int, int, Matrix]], seconds: dict[int, Matrix]) -> list[tuple[int, int, Matrix]]:
    """Sites that follow each other as one, where none needs another: the comparisons of one round of max pooling.

    `seconds` are the rows of their second sides, by the number of the first tap: facets need these, too, and what both
    sides of a comparison have in common is not in their difference.
    """
    groups: list[list[tuple[int, int, Matrix]]] = []
    for first, last, Q in taps:
        needed = [Q, seconds[first]] if first in seconds else [Q]
        if groups and not any(bool(rows.dense()[:, groups[-1][0][0] :].any()) for rows in needed):
            groups[-1].append((first, last, Q))
        else:
            groups.append([(first, last, Q)])
    result = []
    for group in groups:
        start, end = group[0][0], group[-1][1]
        result.append((start, end, _below_each_other([(first, Q) for first, _, Q in group], start, end)))
    return result


def _below_each_other(parts: list[tuple[int, Matrix]], start: int, end: int) -> Matrix:
    """One matrix (end − start, start) of parts that begin at given rows and have nothing in columns from start on."""
    rows = torch.zeros(end - start, start, dtype=parts[0][1].forward.dtype, device=parts[0][1].forward.device)
    for first, part in parts:
        whole = part.dense()
        assert not bool(whole[:, start:].any())
        rows[first - start : first - start + len(whole)] = whole[:, :start]
    row, column = rows.nonzero(as_tuple=True)
    return Matrix.of(row, column, rows[row, column], (end - start, start))


class Dual:
    """The collapsed network in one precision, ready to bound batches of domains; it stops when the time is over."""

    def __init__(self, collapsed: Collapsed, dtype: torch.dtype, budget: Budget = UNLIMITED):
        budget.check_time()
        self.dtype, self.budget = dtype, budget
        self.center, self.radius = collapsed.center, collapsed.radius
        self.kinds = [(t.first, t.last, t.kind) for t in collapsed.taps]
        self.smooth = any(activation(t.kind).pieces is None for t in collapsed.taps)
        self._smooth_lines = SmoothLines(self.kinds)
        r = [t.r + t.P.times(self.center[:, None])[:, 0] for t in collapsed.taps]
        self.r = torch.cat([collapsed.c[:0], *r]).to(dtype)[:, None]
        scaled = [(t.first, t.last, t.P.scaled(self.radius), t.Q.to(dtype)) for t in collapsed.taps if t.last > t.first]
        self.taps = [(first, last, Q) for first, last, _, Q in scaled]
        if collapsed.tournaments is not None:
            self.taps = _together(self.taps, {each.first: each.b.Q for each in collapsed.tournaments.comparisons})
        self.P = Stack([(first, P) for first, _, P, _ in scaled], collapsed.count, len(self.center)).to(dtype)
        shift = collapsed.c + self.center @ collapsed.p
        self.margins = Row(collapsed.q.to(dtype), (collapsed.p * self.radius[:, None]).to(dtype), shift.to(dtype))
        #: what a unit of λ on each tap may lose to rounding (T, 1): what its row did when it was made, and at most as
        #: much again when it is added to others
        self.loss = 2 * torch.cat([collapsed.c[:0], *[t.loss for t in collapsed.taps]])[:, None]
        self.facets: Facets | None = None
        #: steps on multipliers so far, one for each domain
        self.steps = 0
        self.relu = torch.zeros(collapsed.count, 1, dtype=torch.bool, device=self.r.device)
        for first, last, kind in self.kinds:
            self.relu[first:last] = activation(kind).pieces is not None

    def with_facets(self, facets: Facets) -> "Dual":
        """The same with upper bounds of the taps of the first sites."""
        result = copy(self)
        on_taps = {}
        for first, last, _ in self.taps if facets.on_taps else ():
            parts = [(at, matrix) for at, matrix in facets.on_taps.items() if first <= at < last]
            if parts and first:
                on_taps[first] = _below_each_other(parts, first, last).to(self.dtype)
        count = len(facets.g)
        # sites that are one step have facets to its end, of which those of the others are not used
        more = next((last for _, last, _ in self.taps if last >= count), count) - count
        G = facets.G.with_rows([], count + more) if more else facets.G
        g, used = (torch.cat([part, part.new_zeros(more, 1)]) for part in (facets.g, facets.used))
        result.facets = Facets(G.to(self.dtype), g.to(self.dtype), used, on_taps)
        return result

    def relaxation(self, domains: Domains) -> Relaxation:
        """Lines of the taps in each domain, as functions of α."""
        lower, upper = domains.lower, domains.upper
        if self.smooth:
            return self._smooth_lines.relaxation(lower, upper, self.open(domains))
        lines, free = relax_relu(lower, upper), self.open(domains).to(self.dtype)
        return Relaxation(lines._replace(lower_slope=lines.lower_slope * (1 - free)), free)

    def lines(self, domains: Domains) -> Relaxed:
        """Lines of the taps in each domain with the α that it carries, and its shares of facets."""
        relaxation = self.relaxation(domains)
        shared = self.shared(relaxation.free)
        return Relaxed(*relaxation.at(domains.alpha), share=shared * domains.share[: len(shared)])

    def shared(self, free: Tensor) -> Tensor:
        """Of the first taps (F, B) 1 where there is a facet to use, given where α is free (T, B), else 0."""
        if self.facets is None:
            return free[:0]
        return free[: len(self.facets.g)] * self.facets.used.to(self.dtype)

    def told(self, domains: Domains, q: Tensor) -> Domains:
        """With multipliers as proofs have them: the share in place of α where `q` (T, B) < 0 and α has no use."""
        if self.facets is None:
            return domains
        count, alpha = len(self.facets.g), domains.alpha.clone()
        instead = (q[:count] < 0) & self.facets.used
        alpha[:count] = torch.where(instead, domains.share[:count], alpha[:count])
        return replace(domains, alpha=alpha)

    def open(self, domains: Domains) -> Tensor:
        """ReLU taps (T, B) that are still unstable in the domain: those whose α is free."""
        open_ = (domains.lower < 0) & (domains.upper > 0)
        return self.relu & open_ if self.smooth else open_

    def splittable(self, domains: Domains) -> Tensor:
        """Taps (T, B) that a split can make tighter: open ReLUs, and smooth ones on an interval of some width."""
        open_ = self.open(domains)
        return open_ | (~self.relu & (domains.upper - domains.lower > SMALLEST)) if self.smooth else open_

    def lines_of(self, taps: Tensor, lower: Tensor, upper: Tensor, alpha: Tensor) -> Lines:
        """Lines of single taps (B,) on the given intervals (B,); of smooth ones with the given α (B,)."""
        lines = relax_relu(lower, upper)
        for first, last, kind in self.kinds if self.smooth else ():
            here = (taps >= first) & (taps < last)
            if activation(kind).pieces is None and bool(here.any()):
                smooth = at_alpha(activation(kind), lower[here], upper[here], alpha[here])
                for line, new in zip(lines, smooth, strict=True):
                    line[here] = new.to(line.dtype)
        return lines

    def rows(self, domains: Domains, columns: Tensor | None = None) -> Row:
        """The margin that each domain is about; a single column if it is the same for all."""
        margin = domains.margin if columns is None else domains.margin[columns]
        if len(margin) and bool((margin == margin[0]).all()):
            margin = margin[:1]
        return Row(*(t[..., margin] for t in self.margins))

    def backward(self, rows: Row, lines: Relaxed, push: Tensor | None, edge: Tensor | None = None) -> Row:
        """From rows on h and x to bounds: q (T, B), p (n, B), and the bounds (B,) as c.

        `push` (T, B) is σ·β, None without splits; `edge` (B,) the constant that belongs to it in smooth networks.
        """
        width = lines.lower_slope.shape[1]
        q = rows.q.expand(-1, width).clone()
        slope, negative = torch.empty_like(q), torch.empty_like(q)
        share = lines.share
        over = None if self.facets is None else torch.empty_like(share)
        for first, last, Q in reversed(self.taps):
            self.budget.check_time()
            here = slice(first, last)
            positive = q[here].clamp(min=0)
            torch.mul(positive, lines.lower_slope[here], out=slope[here])
            torch.sub(q[here], positive, out=negative[here])
            if over is not None and first < len(over):
                torch.mul(negative[here], share[here], out=over[here])
                negative[here] -= over[here]
            slope[here].addcmul_(negative[here], lines.upper_slope[here])
            if push is not None:
                slope[here] -= push[here]
            if first:
                q[:first] += Q.transposed_times(slope[here])
            if over is not None and self.facets is not None and first in self.facets.on_taps:
                q[:first] += self.facets.on_taps[first].transposed_times(over[here])
        c = rows.c + (negative * lines.upper_intercept).sum(0) + (self.r.t() @ slope)[0]
        if self.dtype == torch.float64:  # in float32 nothing is proven
            c = c - (self.loss.t() @ slope.abs())[0]
        if self.smooth:
            c = c + (q.clamp(min=0) * lines.lower_intercept).sum(0)
            c = c if edge is None else c + edge
        p = self.P.transposed_times(slope).add_(rows.p)
        if self.facets is not None and over is not None:
            p += self.facets.G.transposed_times(over)
            c = c + (self.facets.g.t() @ over)[0]
            if self.dtype == torch.float64:
                c = c - (self.loss[: len(over)].t() @ over.abs())[0]
        return Row(q, p, c - p.abs().sum(0))

    def forward(self, row: Row, lines: Relaxed) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The scaled minimizer x* (n, B); z* and h* (T, B) that it gives on the lines that were used; the gradient.

        That is ∂bound/∂α (T, B) and ∂bound/∂share (F, B).
        """
        x = row.p.sign().neg_()
        self.steps += x.shape[1]
        z = self.P.times(x).add_(self.r)
        h = torch.empty_like(z)
        below = torch.ge(row.q, 0, out=torch.empty_like(row.q))  # 1 or 0
        slope = torch.lerp(lines.upper_slope, lines.lower_slope, below)
        shift = torch.lerp(lines.upper_intercept, lines.lower_intercept, below)
        share, beyond = lines.share, None
        if self.facets is not None:
            beyond = self.facets.G.times(x).add_(self.facets.g)
            falling = (1 - below[: len(beyond)]).mul_(self.facets.used.to(self.dtype))
        for first, last, Q in self.taps:
            self.budget.check_time()
            here = slice(first, last)
            if first:
                z[here] += Q.times(h[:first])
            torch.addcmul(shift[here], slope[here], z[here], out=h[here])
            if beyond is not None and first < len(beyond):
                if self.facets is not None and first in self.facets.on_taps:
                    beyond[here] += self.facets.on_taps[first].times(h[:first])
                beyond[here].sub_(h[here]).mul_(falling[here])
                h[here].addcmul_(beyond[here], share[here])
        gradient = row.q.clamp(min=0).mul_(z)
        return x, z, h, gradient, share if beyond is None else beyond.mul_(row.q[: len(beyond)])

    def edge(self, domains: Domains) -> Tensor | None:
        """Σ β·lower over splits z ≥ lower and −β·upper over splits z ≤ upper (B,): nothing in ReLU networks."""
        return edge_of(domains.split * domains.beta, domains.lower, domains.upper) if self.smooth else None

    def bounded(self, domains: Domains, rows: Row | None = None) -> Row:
        """The margins, or other rows, bounded by p·x with the multipliers that the domains carry; c is the bound."""
        push = domains.split * domains.beta
        return self.backward(rows or self.rows(domains), self.lines(domains), push, self.edge(domains))

    def bound(self, domains: Domains, rows: Row | None = None) -> Tensor:
        """Bounds (B,) of the margins, or of other rows, with the multipliers that the domains carry."""
        return self.bounded(domains, rows).c

    def evaluate(self, domains: Domains) -> Evaluation:
        """Bounds with the multipliers that the domains carry, and what the branching needs."""
        lines = self.lines(domains)
        row = self.backward(self.rows(domains), lines, domains.split * domains.beta, self.edge(domains))
        pixels = self.center - self.radius * row.p.sign().t().to(self.center.dtype)
        return Evaluation(row.c, row.q, lines, pixels)

    def tap_rows(self, taps: Tensor) -> Row:
        """The pre-activations of chosen taps (K,)."""
        one = torch.zeros(len(self.r), len(taps), dtype=self.dtype, device=taps.device)
        one[taps, torch.arange(len(taps), device=taps.device)] = 1
        q = torch.zeros_like(one)
        p = self.P.transposed_times(one)
        for first, last, Q in self.taps:
            if first:
                q[:first] += Q.transposed_times(one[first:last])
        return Row(q, p, self.r[taps, 0])
