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
from lingraft.solver.dual import Domains, Dual, Row, outward, root_domains
from lingraft.solver.margin import MARGIN
from lingraft.solver.network import Network
from lingraft.solver.proof import Round, whole
from lingraft.solver.region import Region


def tighten(dual: Dual, exact: Dual, base: Domains, taps: Tensor, steps: int) -> Round:
    """Tighten the bounds of chosen taps (K,) of one domain, in place; what was done is the result.

    The multipliers are searched in `dual`'s precision; the bounds taken are computed from them by `exact` in float64
    and rounded outwards.
    """
    count = len(taps)
    columns = base.select(torch.zeros(2 * count, dtype=torch.long, device=taps.device))
    both = torch.cat([taps, taps])
    sign = torch.ones(2 * count, dtype=torch.float64, device=taps.device)
    sign[count:] = -1
    gamma = _search(dual, columns, _signed(dual.tap_rows(both), sign.to(dual.dtype)), steps).float()
    columns = columns.exactly()
    margin = exact.rows(columns)
    margin = margin._replace(c=margin.c - MARGIN)
    rows = _plus(_signed(exact.tap_rows(both), sign), gamma.double(), margin)
    found = exact.bound(columns, rows) - exact.loss[both, 0]
    below, above = torch.where(torch.isfinite(found), found, -torch.inf).view(2, count)
    low, high = outward(below, -above, base.lower.dtype)
    base.lower[taps, 0] = torch.maximum(base.lower[taps, 0], low)
    base.upper[taps, 0] = torch.minimum(base.upper[taps, 0], high)
    return Round(taps, whole(columns.alpha), gamma)


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


def _search(dual: Dual, columns: Domains, rows: Row, steps: int, rate: float = 0.2, decay: float = 0.9) -> Tensor:
    """Good multipliers: α and β into `columns`, and γ (columns,), the result."""
    margin = dual.rows(columns)
    lines, open_ = dual.lines(columns), dual.open(columns)
    fixed, free = torch.where(open_, 0.0, lines.lower_slope), open_.to(dual.dtype)
    alpha, beta = Adam(columns.alpha.clone(), 0.0, 1.0), Beta(columns, dual)
    gamma = Adam(torch.zeros_like(rows.c), 0.0, torch.inf)
    one = columns.select(torch.zeros(1, dtype=torch.long, device=rows.c.device))
    reach, unit = dual.bounded(one).p.abs().sum(0).clamp(min=1e-30), torch.ones_like(rows.c)
    best = torch.full_like(rows.c, -torch.inf)
    kept = alpha.value.clone(), beta.value.clone(), gamma.value.clone()
    for step in range(steps + 1):
        lines = lines._replace(lower_slope=torch.addcmul(fixed, free, alpha.value))
        row = dual.backward(_plus(rows, gamma.value, margin), lines, beta.pushes(), beta.edge())
        better = row.c > best
        best = torch.where(better, row.c, best)
        for old, new in zip(kept, (alpha.value, beta.value, gamma.value), strict=True):
            torch.where(better, new, old, out=old)
        if step == steps:
            break
        if not step:  # γ is measured in how far the rows reach over the region, in units of how far the margin does
            unit = row.p.abs().sum(0) / reach
        x, z, h, gradient = dual.forward(row, lines)
        gamma.ascend((margin.p * x).sum(0) + (margin.q * h).sum(0) + margin.c, rate * unit)
        beta.ascend(z, rate)
        alpha.ascend(gradient.mul_(free), rate)
        rate *= decay
    columns.alpha = kept[0]
    beta.value = kept[1]
    beta.store(columns)
    return kept[2]
