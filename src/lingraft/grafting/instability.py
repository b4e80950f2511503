"""Instability: for how many images, and how far, a neuron is not linear in the ball (the paper, Section 4, step 1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lingraft.ball import Ball, Eps, Radius, radius
from lingraft.data import ImageSet
from lingraft.grafting.site_sums import sites_of, sum_over_images
from lingraft.names import lookup
from lingraft.solver.methods import METHODS
from lingraft.solver.network import Network
from lingraft.solver.nodes import Site
from lingraft.solver.nonlinearity import nonlinearity, unstable

#: (site, lower, upper bounds (N, *site)) → what each image adds to the score of each neuron
Measure = Callable[[Site, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Instability:
    """How many images make a neuron unstable: its bounds l < 0 < u over the ball of radius ε around the image.

    A sigmoid or tanh neuron adds, for each image, a number from 0 to 1 instead of 0 or 1: how far it is from linear
    between its bounds, as a share of its whole rise. Grafted neurons are linear and count as stable everywhere.
    """

    eps: Radius
    bounds: str = "crown"

    def __post_init__(self) -> None:
        lookup("bounds", self.bounds, METHODS)
        object.__setattr__(self, "eps", radius(self.eps, alike=True))

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → sums over the images, from 0 to len(data), float64, of the neuron shape."""
        return self._sums(model, data, nonlinearity)

    def counts(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """The same, but a smooth neuron adds 1 where it is farther from linear than 1 % of its rise, else 0."""
        return self._sums(model, data, unstable)

    def _sums(self, model: nn.Module, data: ImageSet, measure: Measure) -> dict[str, Tensor]:
        ball = Ball.around(self.eps, data.images.shape, data.clip)

        def of_batch(network: Network, images: Tensor, labels: Tensor) -> dict[int, Tensor]:
            found = METHODS[self.bounds](network, *ball.bounds(images))
            sites = sites_of(network)
            return {
                i: torch.stack([measure(sites[j], *found[j]) for j in parts]).amax(0).sum(0)
                for i, parts in network.bends.items()
            }

        return sum_over_images("instability", model, data, 64 if self.bounds == "intervals" else 1, of_batch)


def would_be_unstable(model: nn.Module, data: ImageSet, eps: Eps, bounds: str = "crown") -> dict[str, Tensor]:
    """For how many images each grafted neuron would be unstable, had it its activation back: of the neuron shape."""
    ball = Ball.around(eps, data.images.shape, data.clip)

    def of_batch(network: Network, images: Tensor, labels: Tensor) -> dict[int, Tensor]:
        found, sites = METHODS[bounds](network, *ball.bounds(images)), sites_of(network)
        plain = {j: replace(site, grafted=torch.zeros_like(site.grafted)) for j, site in sites.items()}
        return {
            i: torch.stack([unstable(plain[j], *found[j]) for j in parts]).any(0).sum(0)
            for i, parts in network.bends.items()
        }

    return sum_over_images("lines as activations", model, data, 64 if bounds == "intervals" else 1, of_batch)


def unstable_ratio(model: nn.Module, data: ImageSet, eps: Eps, bounds: str = "crown") -> float:
    """UNR: the share of neurons that are unstable, averaged over the images (the paper, Section 5)."""
    counts = Instability(radius(eps), bounds).counts(model, data)
    neurons = sum(count.numel() for count in counts.values())
    return sum(float(count.sum()) for count in counts.values()) / (neurons * len(data))
