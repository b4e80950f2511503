"""Ways to bound the pre-activations of every site, by name. A new one is a function and a line in `METHODS`.

Bounds of the outputs follow from those of the sites.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lingraft.names import lookup
from lingraft.solver.bounds import bound_sites, output_bounds
from lingraft.solver.budget import Budget
from lingraft.solver.intervals import interval_bounds
from lingraft.solver.network import Network
from lingraft.solver.nodes import Site
from lingraft.solver.region import Region
from lingraft.solver.tighten import alpha_crown

#: Bounds (site's shape, float64) by position of the site.
SiteIntervals = dict[int, tuple[Tensor, Tensor]]

#: (network, lower (N, *shape), upper (N, *shape)) → bounds (N, *site's shape) over each of the N boxes. All images of a
#: box must have their pre-activations between them: neurons are called stable by what is listed here.
Method = Callable[[Network, Tensor, Tensor], SiteIntervals]


def _box_by_box(bound: Callable[[Network, Region], SiteIntervals]) -> Method:
    def bound_all(network: Network, lower: Tensor, upper: Tensor) -> SiteIntervals:
        each = [bound(network, Region(*box)) for box in zip(lower.double(), upper.double(), strict=True)]
        return {i: (torch.stack([b[i][0] for b in each]), torch.stack([b[i][1] for b in each])) for i in each[0]}

    return bound_all


#: From cheap and wide to costly and tight.
METHODS: dict[str, Method] = {
    "intervals": interval_bounds,
    "crown": _box_by_box(lambda network, region: bound_sites(network, region, Budget()).bounds),
    "alpha-crown": _box_by_box(alpha_crown),
}


class Bounds(dict[str, tuple[Tensor, Tensor]]):
    """Site name → lower and upper bounds (neuron shape); `outputs` are those of the model's outputs (classes,)."""

    def __init__(self, sites: dict[str, tuple[Tensor, Tensor]], outputs: tuple[Tensor, Tensor]):
        super().__init__(sites)
        self.outputs = outputs


def bounds(model: nn.Module, region: Region | tuple[Tensor, Tensor], method: str = "crown") -> Bounds:
    """Lower and upper bounds (neuron shape, float64) of the pre-activations of every site over a region.

    `method` is "intervals", "crown" (CROWN intersected with intervals) or "alpha-crown" (its slopes optimized for
    every neuron). Sound for all images of the region; keys are the names that `lingraft.sites` gives. The bounds of
    the outputs, e.g. logits, are in `.outputs`: by intervals, otherwise by CROWN with these bounds of the sites.
    """
    bound = lookup("method", method, METHODS)
    region = region if isinstance(region, Region) else Region(*region)
    network = Network.from_module(model, region.lower.shape)
    each = bound(network, region.lower[None], region.upper[None])
    found = {}
    for i in network.bends:
        site = network.nodes[i]
        assert isinstance(site, Site)
        one, other = ((network.outside(end)[0] - site.offset) / site.gain for end in each[i])
        found[site.name] = torch.minimum(one, other), torch.maximum(one, other)
    within = {i: (lower[0], upper[0]) for i, (lower, upper) in each.items()}
    return Bounds(found, output_bounds(network, region, None if method == "intervals" else within))
