"""Tighter upper bounds of ReLUs: functions of the image, not of z alone.

The chord above relu(z) forgets which image gives z. Let W·x + w be above z for all images |x| ≤ 1: in the first site it
is z itself, behind it what the lines of the taps before give (`forms.py`). Then, for *any* vector G,

    relu(z)  ≤  relu(W·x + w)  ≤  G·x + g        g = max( ‖G‖₁, ‖W − G‖₁ + w )

since g is the largest value of 0 − G·x and of W·x + w − G·x. In the first site the chord is G = s·W. The best ones are
the facets of the concave envelope (Tjandraatmadja et al. 2020): to be tight at x, leave out the weights at which x
pushes z up most, as many as can be left out with z ≤ 0 when all others push down, and count the others in full. Which x
matters depends on the row to be bounded; G is chosen once for a margin, and a domain's shares say how much is used
(`dual.py`).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lingraft.model.activations import activation
from lingraft.model.activations.relu import relax_relu
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains, Dual, Facets, Relaxed, outward
from lingraft.solver.forms import Before
from lingraft.solver.largest import Largest
from lingraft.solver.largest import fit as fit_largest
from lingraft.solver.matrix import Matrix, Stack
from lingraft.solver.proof import Shares, whole

#: G is W times a share of each weight, a multiple of one over this, so that certificates are small.
STEPS_OF_SHARE = 15

#: Steps of the search, and how many weights at most are sorted in each.
STEPS, LARGEST = 12, 1 << 20


@dataclass
class Block:
    """Functions above z of the taps `first` … of one site: K weights (m, K) at pixels (m, K), padded by 0; w (m,).

    The weights, in order, belong to taps (E,) of the block, pixels (E,), at places (E,) of `weight`.
    """

    first: int
    tap: Tensor
    entry: Tensor
    place: Tensor
    weight: Tensor
    pixel: Tensor
    w: Tensor

    @property
    def last(self) -> int:
        """The number behind its last tap."""
        return self.first + len(self.w)

    @classmethod
    def of(cls, first: int, rows: Tensor, w: Tensor) -> "Block":
        """From functions rows·x + w, (m, n) and (m,)."""
        tap, entry = rows.nonzero(as_tuple=True)
        sizes = tap.bincount(minlength=len(w))
        place = torch.arange(len(tap), device=tap.device) - (sizes.cumsum(0) - sizes)[tap]
        weight = rows.new_zeros(len(w), max(1, int(sizes.max())))
        pixel = torch.zeros_like(weight, dtype=torch.long)
        weight[tap, place] = rows[tap, entry]
        pixel[tap, place] = entry
        return cls(first, tap, entry, place, weight, pixel, w)

    def some(self, taps: Tensor) -> "Block":
        """The same without lists of the weights, of some taps of the block only, in float32: to search with."""
        none = self.tap[:0]
        return Block(self.first, none, none, none, self.weight[taps].float(), self.pixel[taps], self.w[taps].float())

    def envelope(self, x: Tensor) -> Tensor:
        """Shares (m, K) in [0, 1] of the facets of the concave envelopes at x (n,)."""
        size = self.weight.abs()
        order = (x[self.pixel] * self.weight.sign()).argsort(1, descending=True)
        ordered = size.gather(1, order)
        start = (self.w - size.sum(1))[:, None]
        value = torch.cat([start, start + 2 * ordered.cumsum(1)], 1).clamp(min=0)
        share = value.diff(dim=1) / (2 * ordered).clamp(min=1e-30)
        return torch.zeros_like(size).scatter(1, order, share.clamp(0, 1))

    def on_image(self, factor: Tensor, pixels: int) -> Tensor:
        """Σ factor·weight at each of so many pixels, for factors (m, K) or (m, 1)."""
        terms = (factor * self.weight).flatten()
        return torch.zeros(pixels, dtype=terms.dtype, device=terms.device).index_add_(0, self.pixel.flatten(), terms)


class Above:
    """Functions above z of the taps of the first sites over the whole region, |x| ≤ 1, for all margins.

    As many sites as have few enough weights, of ReLUs. Those behind the first use the usual lines of the taps before.
    """

    def __init__(self, collapsed: Collapsed, budget: Budget = UNLIMITED):
        self.pixels = len(collapsed.center)
        self.blocks: list[Block] = []
        lines = relax_relu(*(bounds[:, None] for bounds in outward(collapsed.lower, collapsed.upper, torch.float64)))
        #: the slopes below the taps that the functions use (T,), as proofs have them
        self.slopes = whole(lines.lower_slope[:, 0])
        left = LARGEST
        for number, taps in enumerate(collapsed.taps):
            if taps.last == taps.first:
                continue
            if activation(taps.kind).pieces is None:
                break
            block = self._block(Before(collapsed, number, Relaxed.alone(lines), budget), taps.first, left)
            if block is None:
                break
            self.blocks.append(block)
            left -= len(block.tap)
        self.largest = Largest(collapsed, lines, budget)

    def _block(self, before: Before, first: int, most: int) -> Block | None:
        """One site; None if it has too many weights."""
        rows, constants, left = [], [], most
        for some in before.pieces():
            p, c = before.below(some, -1.0)
            rows.append(-p.t())
            constants.append(-c)
            left -= int(p.count_nonzero())
            if left < 0:
                return None
        order = torch.cat(before.pieces()).argsort()
        return Block.of(first, torch.cat(rows)[order], torch.cat(constants)[order])

    @property
    def count(self) -> int:
        """Number of taps that have functions: they are the first ones."""
        return self.blocks[-1].last if self.blocks else 0

    @property
    def none(self) -> Facets:
        """No facets of any tap."""
        used = torch.zeros(0, 1, dtype=torch.bool, device=self.slopes.device)
        return Facets(Stack([], 0, self.pixels), torch.zeros_like(used, dtype=torch.float64), used)

    def facets(self, shares: Shares) -> Facets:
        """G and g of the taps that have shares."""
        used = torch.zeros(self.count, 1, dtype=torch.bool, device=shares.tap.device)
        used[shares.tap] = True
        parts, constants = [], []
        for block in self.blocks:
            here = used[block.first : block.last, 0]
            entries = here[block.tap].nonzero().flatten()
            tap, place = block.tap[entries], block.place[entries]
            share = torch.zeros_like(block.weight)
            mine = (shares.tap >= block.first) & (shares.tap < block.last)
            share[tap, place] = shares.share[mine].to(share.dtype) / STEPS_OF_SHARE
            G = share * block.weight
            constants.append(torch.maximum(G.abs().sum(1), (block.weight - G).abs().sum(1) + block.w))
            shape = (len(block.w), self.pixels)
            parts.append((block.first, Matrix.of(tap, block.entry[entries], G[tap, place], shape)))
        return Facets(Stack(parts, self.count, self.pixels), torch.cat(constants)[:, None], used)

    def shares(self, share: list[Tensor], used: Tensor) -> Shares:
        """From shares (m, K) of each block, of the taps that are used (F,)."""
        taps, pixels, steps = [], [], []
        for block, mine in zip(self.blocks, share, strict=True):
            entries = used[block.first : block.last][block.tap].nonzero().flatten()
            tap = block.tap[entries]
            taps.append(block.first + tap)
            pixels.append(block.entry[entries])
            steps.append((mine[tap, block.place[entries]] * STEPS_OF_SHARE).round().to(torch.int8))
        return Shares(torch.cat(taps), torch.cat(pixels), torch.cat(steps), self.slopes)


def in_full(base: Domains) -> Domains:
    """`base` with shares that use facets in full."""
    return replace(base, share=torch.ones_like(base.share))


def fit(above: Above, dual: Dual, base: Domains) -> Shares:
    """Shares that make the bound of `base` (one domain, without facets so far) good; its other multipliers stay.

    The least value over the box of what bounds the margin, as a function of x, is a convex problem: the Frank-Wolfe
    method on its dual, where x is the mean of all minimizers so far, and each step moves G towards the facets at x.
    """
    count, used = above.count, torch.ones(above.count, 1, dtype=torch.bool, device=base.margin.device)
    # what is bounded by facets, as if they were 0
    nothing = dual.with_facets(Facets(Stack([], count, above.pixels), torch.zeros_like(dual.r[:count]), used))
    full = in_full(base)
    row, lines = nothing.bounded(full), nothing.lines(full)
    q = torch.where(nothing.open(full), row.q, 0.0)[:count, 0].float()
    chord = lines.upper_slope[:count, 0].float()
    first = above.blocks[0]  # whose lower lines are tight at x, too
    rising = first.some((q[: first.last] > 0).nonzero().flatten())
    up = q[: first.last][q[: first.last] > 0, None]
    slope = lines.lower_slope[: first.last][q[: first.last] > 0].float()
    falling = [block.some((q[block.first : block.last] < 0).nonzero().flatten()) for block in above.blocks]
    down = [mine[mine < 0, None] for mine in (q[block.first : block.last] for block in above.blocks)]
    share = [
        chord[block.first : block.last][mine < 0, None].expand_as(some.weight).clone()
        for block, some in zip(above.blocks, falling, strict=True)
        for mine in [q[block.first : block.last]]
    ]
    rest = row.p[:, 0].float() - rising.on_image(up * slope, above.pixels)

    def whole_row() -> Tensor:
        parts = [b.on_image(d * s, above.pixels) for b, d, s in zip(falling, down, share, strict=True)]
        return sum(parts, rest + rising.on_image(up * slope, above.pixels))

    p = whole_row()
    x = -p.sign()
    for step in range(STEPS):
        dual.budget.check_time()
        move = 2 / (step + 3)
        x = x + move * (-p.sign() - x)
        z = (rising.weight * x[rising.pixel]).sum(1, keepdim=True) + rising.w[:, None]
        slope = slope + move * ((z > 0).float() - slope)
        share = [old + move * (block.envelope(x) - old) for block, old in zip(falling, share, strict=True)]
        p = whole_row()
    all_shares = []
    for block, mine in zip(above.blocks, share, strict=True):
        every = torch.zeros_like(block.weight)
        every[q[block.first : block.last] < 0] = mine.to(every.dtype)
        all_shares.append(every)
    return above.shares(all_shares, q < 0)


def fit_pooled(above: Above, dual: Dual, base: Domains) -> tuple[Facets, Domains]:
    """Facets of the comparisons of max pooling and of all other ReLUs, fitted to `base` (one domain); α that use them.

    Whatever `fit` finds for comparisons is left out.
    """
    compared = torch.zeros_like(base.alpha, dtype=torch.bool)
    compared[above.largest.taps] = True
    if bool(compared[: above.count].all()):
        return fit_largest(above.largest, above.none, dual, base)
    shares = fit(above, dual, base)
    mine = (~compared[shares.tap, 0]).nonzero().flatten()
    others = above.facets(Shares(shares.tap[mine], shares.pixel[mine], shares.share[mine], shares.slopes))
    return fit_largest(above.largest, others, dual, in_full(base))
