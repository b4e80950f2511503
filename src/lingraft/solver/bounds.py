"""Bounds of the pre-activations of every site over a region, by intervals and by CROWN, and of the margins."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.crown import Watch, crown_bounds, lower_bound, pass_back, relaxed, row_products
from lingraft.solver.intervals import UNDERFLOW, through_linear, through_site
from lingraft.solver.network import Network
from lingraft.solver.nodes import Input, Site
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes
from lingraft.solver.rows import Rows
from lingraft.solver.unfolding import Unfolding

#: Spans decide a neuron clearly if 0 is so far from them, as a share of their width.
CLEAR = 0.05


@dataclass
class SiteBounds:
    """Bounds (site's shape) of every site, the lines they allow, and the box center ± radius (input's inner shape)."""

    bounds: dict[int, tuple[Tensor, Tensor]]
    lines: dict[int, Lines]
    center: Tensor
    radius: Tensor
    #: interval bounds of the logits, given the bounds of the sites
    logits: tuple[Tensor, Tensor]
    #: what a sum may lose to rounding, as a share of the sizes of its terms
    share: float
    #: the largest number that the sums of each node are made of, and what a unit of it may lose to rounding there
    sizes: list[float]
    losses: list[float]
    #: with CROWN, the rows of taps that came of it
    unfolding: Unfolding | None = None
    #: which values of each node matter, if not all: others are bounded by intervals, and are no taps
    visible: list[Tensor] | None = None

    def unstable(self, network: Network, i: int) -> Tensor:
        """Neurons of site `i` that matter and are neither grafted nor linear on their interval; no smooth one is."""
        site = network.nodes[i]
        assert isinstance(site, Site)
        found = _unstable(site, *self.bounds[i])
        return found if self.visible is None else found & self.visible[i]


def _unstable(site: Site, lower: Tensor, upper: Tensor) -> Tensor:
    if site.activation.pieces is not None:
        return ~site.grafted & (lower < 0) & (upper > 0)
    if site.activation.steps:
        low, high = site.activation.between(lower, upper)
        return ~site.grafted & ~(low == high)
    return ~site.grafted


def bound_sites(
    network: Network,
    region: Region,
    budget: Budget,
    method: str = "crown",
    sizes: Sizes | None = None,
    visible: list[Tensor] | None = None,
) -> SiteBounds:
    """One pass from the image to the logits; with CROWN, neurons that intervals leave open are bounded backwards.

    `sizes` are those of the network, to save computing them again. `visible` says which values of each node matter
    (`visible.py`): of the others nothing is to be relied on but their bounds.
    """
    sizes = sizes or Sizes(network)
    low, high = (network.inside(t[None].double())[0] for t in (region.lower, region.upper))
    center = (high + low) / 2
    radius = torch.maximum(high - center, center - low)  # covers the box whatever was rounded
    found = SiteBounds({}, {}, center, radius, (low, high), sizes.share, [], [], visible=visible)
    if method == "crown":
        found.unfolding = Unfolding(network, center, radius, sizes.share, budget, visible)
    values: list[tuple[Tensor, Tensor]] = []
    for i, node in enumerate(network.nodes):
        budget.check_time()
        inputs = [values[j] for j in node.inputs]
        if isinstance(node, Input):
            values.append((low[None], high[None]))
        elif isinstance(node, Site):
            lower, upper = (t[0].clone(memory_format=torch.contiguous_format) for t in inputs[0])
            found.bounds[i] = lower, upper
            if method == "crown":
                _sharpen(network, i, found, budget)
            found.lines[i] = lines_of(node, lower, upper)
            values.append(through_site(node, lower[None], upper[None]))
            if found.unfolding is not None:
                found.unfolding.bounded(i, found.lines[i], found.unstable(network, i), lower, upper)
        else:
            values.append(through_linear(node, inputs))
        found.sizes.append(sizes.of(i, found.sizes, found))
        found.losses.append(sizes.share * found.sizes[i] + UNDERFLOW)
    found.logits = values[-1][0][0], values[-1][1][0]
    return found


def _sharpen(network: Network, i: int, found: SiteBounds, budget: Budget) -> None:
    """Bound the neurons of site `i` that intervals leave open by CROWN, in place.

    Spans are only used where they decide a neuron clearly, and then CROWN does, too: the checker of certificates must
    find bounds as good as these, and it knows intervals and CROWN.
    """
    site, (lower, upper) = network.nodes[i], found.bounds[i]
    assert isinstance(site, Site)
    unfolding, before = found.unfolding, site.inputs[0]
    open_ = found.unstable(network, i).flatten().nonzero().flatten()
    if not len(open_):
        return
    assert unfolding is not None
    unfolding.allow(2 * len(open_) * row_products(network, before, budget))
    spans, better = unfolding.spans(before), None
    if spans is not None:
        low, high = (end.reshape(-1)[open_] for end in spans)
        leave = torch.full_like(low, not unfolding.relaxes, dtype=torch.bool)  # without taps this is CROWN
        bends = site.activation.pieces is not None
        if bends:
            leave |= torch.maximum(low, -high) > CLEAR * (high - low)
        _keep(lower.view(-1), upper.view(-1), open_[leave], low[leave], high[leave])
        open_ = open_[~leave]
        better = unfolding.crown(before, open_, low[~leave], high[~leave], bends) if len(open_) else None
    if len(open_):
        better = better or crown_bounds(
            network, before, open_, found.lines, found.center, found.radius, budget, found.losses
        )
        _keep(lower.view(-1), upper.view(-1), open_, *better)


def _keep(lower: Tensor, upper: Tensor, which: Tensor, low: Tensor, high: Tensor) -> None:
    """Keep the better ones of two pairs of bounds, in place."""
    lower[which] = torch.maximum(lower[which], low)
    upper[which] = torch.maximum(torch.minimum(upper[which], high), lower[which])


def lines_of(site: Site, lower: Tensor, upper: Tensor) -> Lines:
    """The lines of a site: a grafted neuron's own line on both sides, the relaxation elsewhere."""
    own = (site.slope, site.intercept, site.slope, site.intercept)
    lines = site.activation.lines(lower, upper)
    return Lines(*(torch.where(site.grafted, a, b) for a, b in zip(own, lines, strict=True)))


def output_bounds(
    network: Network, region: Region, sites: Mapping[int, tuple[Tensor, Tensor]] | None = None
) -> tuple[Tensor, Tensor]:
    """Bounds (outputs,) of what the network gives on a region: by intervals or, with bounds of its sites, by CROWN."""
    found = bound_sites(network, region, Budget(), "intervals")
    low, high = found.logits
    if sites is None:
        return low, high
    for i, (lower, upper) in sites.items():
        site, known = network.nodes[i], found.bounds[i]
        assert isinstance(site, Site)
        lower = torch.maximum(lower, known[0])
        found.bounds[i] = lower, torch.maximum(torch.minimum(upper, known[1]), lower)
        found.lines[i] = lines_of(site, *found.bounds[i])
    every = torch.arange(len(low), device=low.device)
    below, above = crown_bounds(
        network, len(network.nodes) - 1, every, found.lines, found.center, found.radius, Budget(), found.losses
    )
    low = torch.maximum(low, below)
    return low, torch.maximum(torch.minimum(high, above), low)


def margin_intervals(found: SiteBounds, spec: Tensor, offset: Tensor) -> Tensor:
    """Lower bounds (L,) of spec·logits + offset from the intervals of the logits."""
    low, high = found.logits
    return spec.clamp(min=0) @ low + spec.clamp(max=0) @ high + offset


def margin_crown(
    network: Network,
    found: SiteBounds,
    spec: Tensor,
    offset: Tensor,
    watch: Watch | None = None,
    budget: Budget = UNLIMITED,
) -> Tensor:
    """Lower bounds (L,) of spec·logits + offset by CROWN, or by intervals where these are better."""
    last = {len(network.nodes) - 1: Rows(spec)}
    rows, constant = pass_back(network, last, offset, relaxed(found.lines), watch, budget)
    return torch.maximum(lower_bound(rows, constant, found.center, found.radius), margin_intervals(found, spec, offset))
