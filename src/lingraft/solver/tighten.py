"""Tighter bounds of taps, each with multipliers of its own, given that the margin is not positive.

A counterexample has margin f(x) ≤ 0, so only such x matter, and for any γ ≥ 0

    min z_i  ≥  min z_i + γ·f(x)      over the domain

which is bounded like any other row (Kotha et al. 2023 use the same multiplier for preimages). With γ = 0 it is
α-CROWN on intermediate bounds. If the bounds of a tap cross, no counterexample exists in the domain. So that this is
never for rounding alone, points with a margin of up to `MARGIN` count as counterexamples.
"""

import torch
from torch import Tensor

from lingraft.solver.ascent import Adam, Beta
from lingraft.solver.bounds import bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import collapse
from lingraft.solver.dual import STEPS_OF_ALPHA, Domains, Dual, Relaxed, Row, outward, root_domains
from lingraft.solver.margin import MARGIN
from lingraft.solver.network import Network
from lingraft.solver.proof import Round, whole
from lingraft.solver.region import Region

#: What steps shrink by, each time.
DECAY = 0.9

#: By number of a tap, what bounded z and −z of it when it was tightened last: α and shares of facets, both (T, 2) and
#: whole numbers of steps, and γ (2,) times how far the margin reached.
Starts = dict[int, tuple[Tensor, Tensor, Tensor]]


def tighten(dual: Dual, exact: Dual, base: Domains, taps: Tensor, steps: int, starts: Starts | None = None) -> Round:
    """Tighten the bounds of chosen taps (K,) of one domain, in place; what was done is the result.

    The multipliers are searched in `dual`'s precision; the bounds taken are computed from them by `exact` in float64
    and rounded outwards. The search begins at the α of `base` and γ = 0, or where `starts` says for a tap, and what it
    finds is put there; a start that it finds nothing better than is left out, so that the next search begins anew.
    """
    count, starts = len(taps), {} if starts is None else starts
    columns = base.select(torch.zeros(2 * count, dtype=torch.long, device=taps.device))
    reach = dual.bounded(base).p.abs().sum(0).clamp(min=1e-30)
    gamma = torch.zeros(2 * count, dtype=dual.dtype, device=taps.device)
    for k, tap in enumerate(taps.tolist()):
        if tap in starts:
            alpha, share, size = starts[tap]
            columns.alpha[:, [k, count + k]] = alpha.to(dual.dtype) / STEPS_OF_ALPHA
            columns.share[:, [k, count + k]] = share.to(dual.dtype) / STEPS_OF_ALPHA
            gamma[[k, count + k]] = size / reach
    both = torch.cat([taps, taps])
    sign = torch.ones(2 * count, dtype=torch.float64, device=taps.device)
    sign[count:] = -1
    rows = _signed(dual.tap_rows(both), sign.to(dual.dtype))
    gamma, rose = _search(dual, columns, rows, gamma, reach, steps)
    gamma, stuck = gamma.float(), ~rose.view(2, count).all(0)
    columns = columns.exactly()
    margin = exact.rows(columns)
    margin = margin._replace(c=margin.c - MARGIN)
    rows = _plus(_signed(exact.tap_rows(both), sign), gamma.double(), margin)
    row = exact.bounded(columns, rows)
    found = row.c - exact.loss[both, 0]
    below, above = torch.where(torch.isfinite(found), found, -torch.inf).view(2, count)
    low, high = outward(below, -above, base.lower.dtype)
    base.lower[taps, 0] = torch.maximum(base.lower[taps, 0], low)
    base.upper[taps, 0] = torch.minimum(base.upper[taps, 0], high)
    alpha, share = whole(columns.alpha), whole(columns.share)
    for k, tap in enumerate(taps.tolist()):
        if bool(stuck[k]) and tap in starts:
            del starts[tap]
        else:
            starts[tap] = alpha[:, [k, count + k]], share[:, [k, count + k]], gamma[[k, count + k]] * reach.float()
    return Round(taps, whole(exact.told(columns, row.q).alpha), gamma)


def alpha_crown(network: Network, region: Region) -> dict[int, tuple[Tensor, Tensor]]:
    """Bounds of every site with lower lines optimized for every neuron, site by site (α-CROWN, Xu et al. 2021)."""
    found = bound_sites(network, region, Budget())
    classes = network.nodes[-1].size
    nothing = torch.zeros(1, classes, dtype=torch.float64, device=found.center.device)
    collapsed = collapse(network, found, nothing, nothing[:, 0])
    dual = Dual(collapsed, torch.float64)
    domain = root_domains(collapsed, torch.float64).select(torch.tensor([0], device=found.center.device))
    for taps in collapsed.taps:
        numbers = torch.arange(taps.first, taps.last, device=found.center.device)
        for some in numbers.split(256) if len(numbers) else ():
            tighten(dual, dual, domain, some, steps=20)
        lower, upper = (t.view(-1) for t in found.bounds[taps.site])
        here = slice(taps.first, taps.last)
        lower[taps.index] = torch.maximum(lower[taps.index], domain.lower[here, 0])
        upper[taps.index] = torch.minimum(upper[taps.index], domain.upper[here, 0])
    return found.bounds


def _signed(row: Row, sign: Tensor) -> Row:
    return Row(row.q * sign, row.p * sign, row.c * sign)


def _plus(row: Row, gamma: Tensor, margin: Row) -> Row:
    """The taps' rows plus γ times the margins' rows."""
    return Row(*(torch.addcmul(a, gamma, b) for a, b in zip(row, margin, strict=True)))


def _search(
    dual: Dual, columns: Domains, rows: Row, start: Tensor, reach: Tensor, steps: int, rate: float = 0.2
) -> tuple[Tensor, Tensor]:
    """Good multipliers: α and β into `columns`; γ (columns,), and whether it found better ones than it began with.

    It begins at `start` (columns,); `reach` (1,) is how far the margin reaches over the region.
    """
    margin = dual.rows(columns)
    relaxation = dual.relaxation(columns)
    alpha, beta = Adam(columns.alpha.clone(), 0.0, 1.0), Beta(columns, dual)
    gamma, unit = Adam(start.clamp(min=0), 0.0, torch.inf), torch.ones_like(rows.c)
    best = first = torch.full_like(rows.c, -torch.inf)
    shared = dual.shared(relaxation.free)
    share = Adam(columns.share[: len(shared)].clone(), 0.0, 1.0)
    kept = alpha.value.clone(), beta.value.clone(), gamma.value.clone(), share.value.clone()
    for step in range(steps + 1):
        lines = Relaxed(*relaxation.at(alpha.value), share=shared * share.value)
        row = dual.backward(_plus(rows, gamma.value, margin), lines, beta.pushes(), beta.edge())
        better = row.c > best
        first = row.c if not step else first
        best = torch.where(better, row.c, best)
        for old, new in zip(kept, (alpha.value, beta.value, gamma.value, share.value), strict=True):
            old.lerp_(new, better.to(old.dtype))
        if step == steps:
            break
        if not step:  # γ is measured in how far the rows reach over the region, in units of how far the margin does
            unit = row.p.abs().sum(0) / reach
        x, z, h, gradient, on_share = dual.forward(row, lines)
        gamma.ascend((margin.p * x).sum(0) + (margin.q * h).sum(0) + margin.c, rate * unit)
        beta.ascend(z, rate)
        alpha.ascend(relaxation.gradient(alpha.value, row.q, z, gradient), rate)
        if len(shared):
            share.ascend(on_share.mul_(shared), rate)
        rate *= DECAY
    columns.alpha = kept[0]
    columns.share[: len(shared)] = kept[3]
    beta.value = kept[1]
    beta.store(columns)
    return kept[2], best > first
