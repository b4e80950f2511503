"""Tighter bounds of the taps of many domains at once, from linear functions that are already in hand.

Backward bounding of a domain leaves a linear function of the image below its margin, so a counterexample in the domain
satisfies p·x + c ≤ 0: where the bound c − ‖p‖₁ is close to 0, that leaves little of the region. Every tap has, once for
the whole region, a linear function below z and one below −z, its *forms* a·x + b. Together, for any γ ≥ 0,

    z  ≥  a·x + b + γ·(p·x + c)  ≥  b + γ·c − ‖a + γ·p‖₁

(Clip-and-Verify, Zhou et al. 2025, solves the same problem by sorting.) A few values of γ are tried. The norms are
summed in float32, and the bounds widened by more than that can round away. Where p is about 0, γ has no limit, and a c
just above 0 would leave nothing: so that no rounding does, only points with a margin above `MARGIN` are left out.

The lines of a smooth tap come closer whenever its interval is split, which forms of the whole region do not know. So
there a few taps get forms of each domain's own.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains, Dual, Relaxed, Row, outward
from lingraft.solver.forms import Before
from lingraft.solver.margin import MARGIN

#: Values of γ that are tried, in units of how far the form reaches over how far p reaches on the same pixels.
GRID = (0.5, 2.0, 6.0)

#: Terms of the norms that are in memory at once: they stay in the cache, where summing them is several times as fast
#: as by `torch.cdist`.
TERMS = 1 << 18

#: Taps behind the first site that get forms of each domain's own, in smooth networks.
OWN_FORMS = 32

#: Half the distance of 1 to the next float32: the relative error of one operation.
ROUNDING = 2.0**-24


@dataclass
class _Group:
    """Taps (m,) that look at the same pixels (w,), and their forms (2m, w): below z, then below −z.

    `unit` are the forms scaled to a reach of 1, `size` (2m, 1) their reach ‖a‖₁, `constant` (2m, 1) their b.
    """

    taps: Tensor
    pixels: Tensor
    unit: Tensor
    size: Tensor
    constant: Tensor


class Forms:
    """Forms of the taps over the region of `base` (one domain in float64, with the multipliers to use).

    Taps of a first convolution look at few pixels, on which the constraint hardly ever binds; they are left out.
    """

    def __init__(self, collapsed: Collapsed, exact: Dual, base: Domains):
        self.groups: list[_Group] = []
        self.budget = exact.budget
        lines = exact.lines(base)
        for number, taps in enumerate(collapsed.taps):
            if taps.last > taps.first and (taps.first or not taps.P.sparse):
                self._add(collapsed, number, lines)
        none = collapsed.c[:0].long()
        group = torch.cat([none, *[torch.full_like(g.pixels, i) for i, g in enumerate(self.groups)]])
        entries = torch.stack([group, torch.cat([none, *[g.pixels for g in self.groups]])])
        ones = torch.ones(len(group), dtype=torch.float64, device=group.device)
        shape = (len(self.groups), len(collapsed.center))
        self.looks_at = torch.sparse_coo_tensor(entries, ones, shape, check_invariants=False).coalesce()

    def _add(self, collapsed: Collapsed, number: int, lines: Relaxed) -> None:
        """Groups of one site's taps, by place: its rows are bounded like margins of the sites before it."""
        taps = collapsed.taps[number]
        before = Before(collapsed, number, lines, self.budget)
        for some in before.pieces():
            ways = [before.below(some, sign) for sign in (1.0, -1.0)]
            p, constant = (torch.cat(parts, -1) for parts in zip(*ways, strict=True))
            places = taps.place[some]
            for place in places.unique().tolist():
                here = (places == place).nonzero().flatten()
                both = torch.cat([here, here + len(some)])
                forms = p[:, both]
                pixels = forms.any(1).nonzero().flatten()
                forms = forms[pixels].t()
                size = forms.abs().sum(1, keepdim=True).clamp(min=1e-30)
                unit = (forms / size).float().contiguous()
                self.groups.append(_Group(taps.first + some[here], pixels, unit, size, constant[both, None]))

    def clip(self, domains: Domains, margin: Row) -> None:
        """Tighten the bounds of the domains in place, given p (n, B) below their margins and the bounds as c (B,)."""
        self.budget.check_time()
        reach = (self.looks_at @ margin.p.abs()).float().clamp(min=1e-30)
        bound = torch.where(torch.isfinite(margin.c), margin.c - MARGIN, -torch.inf)
        binding = (-bound < 2 * reach).any(1)  # else the constraint cannot bind on these pixels
        p = margin.p.t().contiguous()
        for i in binding.nonzero().flatten().tolist():
            self._clip(self.groups[i], domains, p, bound, reach[i].double())

    def _norms(self, forms: Tensor, rows: Tensor) -> Tensor:
        """‖a + p‖₁ (M, B) of all forms a (M, w) and rows p (B, w)."""
        norms = []
        for some in forms.split(max(1, TERMS // max(1, rows.numel()))):
            self.budget.check_time()
            norms.append((some[:, None] + rows).abs_().sum(2))
        return torch.cat(norms)

    def group_of(self, count: int) -> Tensor:
        """The number of the group of each of `count` taps, −1 if it has no forms."""
        numbers = torch.full((count,), -1, device=self.looks_at.device)
        for i, group in enumerate(self.groups):
            numbers[group.taps] = i
        return numbers

    def _clip(self, group: _Group, domains: Domains, p: Tensor, bound: Tensor, reach: Tensor) -> None:
        """One group; `bound` (B,) is c − ‖p‖₁, and `reach` (B,) about ‖p‖₁ on the group's pixels."""
        here = p[:, group.pixels]
        level = (bound + here.abs().sum(1)) / reach
        here = (here / reach[:, None]).float()
        slack = 2 * (len(group.pixels) + 8) * ROUNDING
        best = torch.full((len(group.unit), len(here)), -torch.inf, dtype=p.dtype, device=p.device)
        for g in GRID:
            norm = self._norms(group.unit, g * here)
            best = torch.maximum(best, g * level - norm - (1 + g) * slack)
        below, above = torch.addcmul(group.constant, group.size, best).view(2, len(group.taps), -1)
        low, high = outward(below, -above, domains.lower.dtype)
        domains.lower[group.taps] = torch.maximum(domains.lower[group.taps], low)
        domains.upper[group.taps] = torch.minimum(domains.upper[group.taps], high)


def clip_by_own_forms(exact: Dual, domains: Domains, margin: Row, taps: Tensor) -> None:
    """Tighten the bounds of some taps (K,) in place, by forms with the lines that their domains have by now.

    `margin` is below the margins, as for `Forms.clip`. Smooth taps have the lines that are closest in the middle: those
    that the margin chose are as good for one side of another row as they are bad for the other.
    """
    exact.budget.check_time()
    count, double = len(domains), domains.exactly()
    alpha = torch.where(exact.relu, double.alpha, 0.5)
    lines = exact.lines(replace(double, alpha=alpha, share=torch.zeros_like(double.share)))
    rows = exact.tap_rows(taps)
    ways = [Row(*((sign * t).repeat_interleave(count, -1) for t in rows)) for sign in (1.0, -1.0)]
    found = []
    for way in ways:
        row = exact.backward(way, Relaxed(*(line.repeat(1, len(taps)) for line in lines)), None)
        p, c = row.p.view(-1, len(taps), count), row.c.view(len(taps), count)
        size, reach = p.abs().sum(0), margin.p.abs().sum(0).clamp(min=1e-30)
        b, level = c + size, (margin.c - MARGIN) / reach + 1
        best = c
        for g in GRID:
            norm = torch.addcmul(p, margin.p[:, None] / reach, g * size).abs_().sum(0)
            best = torch.fmax(best, b + g * size * level - norm)
        slack = (len(p) + 8) * torch.finfo(p.dtype).eps * (1 + GRID[-1]) * size
        found.append(best - slack - exact.loss[taps])
    below, above = (torch.where(torch.isfinite(best), best, -torch.inf) for best in found)
    low, high = outward(below, -above, domains.lower.dtype)
    domains.lower[taps] = torch.maximum(domains.lower[taps], low)
    domains.upper[taps] = torch.minimum(domains.upper[taps], high)
