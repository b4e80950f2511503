"""Instability: for how many images a neuron can take both signs in the ball (the paper, Section 4, step 1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lingraft.attack.ball import bounds
from lingraft.data import Batches, ImageSet
from lingraft.errors import LingraftError
from lingraft.evaluation import evaluating
from lingraft.grafting.significance import device_of
from lingraft.names import lookup
from lingraft.progress import progress
from lingraft.verification.bounds import bound_sites
from lingraft.verification.budget import Budget
from lingraft.verification.intervals import interval_bounds
from lingraft.verification.network import Network
from lingraft.verification.nodes import Site
from lingraft.verification.region import Region
from lingraft.verification.tighten import alpha_crown

#: (network, lowest pixels, highest pixels) → pre-activation bounds (N, *shape) by position of the site
Bounds = Callable[[Network, Tensor, Tensor], dict[int, tuple[Tensor, Tensor]]]


def _image_by_image(bound: Callable[[Network, Region], dict[int, tuple[Tensor, Tensor]]]) -> Bounds:
    def bound_all(network: Network, lower: Tensor, upper: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
        each = [bound(network, Region(*box)) for box in zip(lower.double(), upper.double(), strict=True)]
        return {i: (torch.stack([b[i][0] for b in each]), torch.stack([b[i][1] for b in each])) for i in each[0]}

    return bound_all


#: Ways to bound pre-activations, from cheap and wide to costly and tight.
BOUNDS: dict[str, Bounds] = {
    "intervals": interval_bounds,
    "crown": _image_by_image(lambda network, region: bound_sites(network, region, Budget()).bounds),
    "alpha-crown": _image_by_image(alpha_crown),
}


@dataclass(frozen=True)
class Instability:
    """How many images make a neuron unstable: its bounds l < 0 < u over the ball of radius ε around the image.

    Grafted neurons are linear and count as stable everywhere.
    """

    eps: float
    bounds: str = "crown"

    def __post_init__(self) -> None:
        lookup("bounds", self.bounds, BOUNDS)
        if not (math.isfinite(self.eps) and 0 <= self.eps <= 1):
            raise LingraftError(f"eps must lie between 0 and 1, not {self.eps}: it is a distance in pixels of [0, 1].")

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → counts from 0 to len(data), float64, of the neuron shape."""
        device = device_of(model)
        with evaluating(model):
            network = Network.from_module(model, tuple(data.images.shape[1:]))
        sites = [(i, node) for i in network.sites if isinstance(node := network.nodes[i], Site) and node.public]
        counts = {node.name: torch.zeros(node.shape, dtype=torch.float64, device=device) for _, node in sites}
        batches = Batches(data, 64 if self.bounds == "intervals" else 1, device=device)
        with progress("instability", len(batches)) as advance, torch.no_grad():
            for images, _ in batches:
                found = BOUNDS[self.bounds](network, *bounds(images, self.eps))
                for i, node in sites:
                    lower, upper = found[i]
                    counts[node.name] += ((lower < 0) & (upper > 0) & ~node.grafted).sum(0)
                advance()
        return {name: network.outside(count[None])[0].contiguous().cpu() for name, count in counts.items()}


def unstable_ratio(model: nn.Module, data: ImageSet, eps: float, bounds: str = "crown") -> float:
    """UNR: the share of neurons that are unstable, averaged over the images (the paper, Section 5)."""
    counts = Instability(eps, bounds).score(model, data)
    neurons = sum(count.numel() for count in counts.values())
    return sum(float(count.sum()) for count in counts.values()) / (neurons * len(data))
