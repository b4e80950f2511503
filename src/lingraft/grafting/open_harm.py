"""Open harm: what the relaxation of a neuron still costs the margins that α and tightening leave unproven."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from lingraft.ball import Ball, Radius, radius
from lingraft.data import ImageSet
from lingraft.grafting.harm import margins
from lingraft.grafting.site_sums import sum_over_images
from lingraft.solver.ascent import improve
from lingraft.solver.bounds import bound_sites
from lingraft.solver.branching import scores
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import collapse
from lingraft.solver.dual import Domains, Dual, root_domains
from lingraft.solver.margin import MARGIN
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.tighten import tighten

#: Steps on α of the margins and of the taps, and how many taps are tightened, those that cost most.
STEPS, TAP_STEPS, TIGHTENED = 20, 6, 60


@dataclass(frozen=True)
class OpenHarm:
    """The terms of the dual bound that the relaxations of the taps cost, summed over images and unproven margins.

    `Harm` looks at CROWN's bounds at the root and at all margins; this looks where the verifier goes on from: α is
    optimized, and the bounds of the taps that cost most are tightened given that the margin is not positive.
    """

    eps: Radius

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", radius(self.eps, alike=True))

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → sums ≥ 0, float64, of the neuron shape; 0 where a neuron is grafted or stable."""
        ball = Ball.around(self.eps, data.images.shape, data.clip)
        return sum_over_images("open harm", model, data, 1, partial(_of_image, ball))


def _of_image(ball: Ball, network: Network, images: Tensor, labels: Tensor) -> dict[int, Tensor]:
    spec = margins(network.nodes[-1].size, int(labels[0])).to(images.device)
    found = bound_sites(network, Region.within(ball, images[0]), Budget())
    collapsed = collapse(network, found, spec, spec.new_zeros(len(spec)))
    harm: dict[int, Tensor] = {}
    if not collapsed.count:
        return harm
    dual = Dual(collapsed, torch.float64)
    bounds, domains = improve(dual, root_domains(collapsed, torch.float64), STEPS)
    costs = torch.zeros(collapsed.count, dtype=torch.float64, device=images.device)
    for number in (bounds <= MARGIN).nonzero().flatten():
        costs += _costs(dual, domains.select(number[None]))
    of_site = {taps.site: taps for taps in collapsed.taps}
    for first, parts in network.bends.items():
        total = torch.zeros(network.nodes[first].shape, dtype=torch.float64, device=images.device)
        for i in parts:
            taps = of_site[i]
            total.view(-1)[taps.index] += costs[taps.first : taps.last]
        harm[first] = total
    return harm


def _costs(dual: Dual, base: Domains) -> Tensor:
    """What each tap (T,) costs the margin of `base`, one domain, once its bounds are tightened; 0 if it is proven."""
    score = scores(dual, base, dual.evaluate(base))[:, 0]
    taps = score.topk(min(TIGHTENED, int(torch.isfinite(score).sum()))).indices
    tight = replace(base, lower=base.lower.clone(), upper=base.upper.clone())
    tighten(dual, dual, tight, taps, TAP_STEPS)
    nothing = torch.zeros_like(score)
    if bool((tight.lower > tight.upper).any()):
        return nothing
    bound, tight = improve(dual, tight, STEPS)
    if bool(bound > MARGIN):
        return nothing
    cost = scores(dual, tight, dual.evaluate(tight))[:, 0]
    return torch.where(torch.isfinite(cost), cost, nothing).clamp(min=0)
