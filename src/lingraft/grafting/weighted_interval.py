"""Weighted interval: how wide an unstable neuron's interval is, by how much of it the next layer takes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lingraft.attack.evaluation import evaluating
from lingraft.ball import Ball, Radius, radius
from lingraft.data import ImageSet
from lingraft.grafting.site_sums import sites_of, sum_over_images
from lingraft.solver.methods import METHODS
from lingraft.solver.network import Network
from lingraft.solver.nonlinearity import unstable
from lingraft.training.differentiable import graph_of
from lingraft.training.differentiable.weights import outgoing_weights


@dataclass(frozen=True)
class WeightedInterval:
    """(u − l)·Σ|w| summed over the images for which the neuron is unstable; w are the weights that carry it on.

    Idea: Han and Kim, "Lipschitz-aware linearity grafting for certified robustness", 2025 (arXiv 2510.25130), who graft
    the neurons with the largest weighted interval. What the interval is weighted with is our reading of it: the sum of
    |w| over all ways from the neuron to a pre-activation, or a logit, without an activation between. `bounds` gives l
    and u.
    """

    eps: Radius
    bounds: str = "crown"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", radius(self.eps, alike=True))

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → sums ≥ 0, float64, of the neuron shape; 0 where a neuron is grafted or stable."""
        ball = Ball.around(self.eps, data.images.shape, data.clip)

        def widths(network: Network, images: Tensor, labels: Tensor) -> dict[int, Tensor]:
            found = METHODS[self.bounds](network, *ball.bounds(images))
            sites = sites_of(network)
            return {
                i: torch.stack([unstable(sites[j], *found[j]) * (found[j][1] - found[j][0]) for j in parts])
                .amax(0)
                .sum(0)
                for i, parts in network.bends.items()
            }

        sums = sum_over_images("weighted intervals", model, data, 64 if self.bounds == "intervals" else 1, widths)
        with evaluating(model):
            weights = outgoing_weights(graph_of(model), tuple(data.images.shape[1:]))
        return {name: values * weights[name].double().cpu() for name, values in sums.items()}
