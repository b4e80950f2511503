"""Harm: how much the relaxation of a neuron loosens the certified margins."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from lingraft.ball import Ball, Radius, radius
from lingraft.data import ImageSet
from lingraft.grafting.site_sums import sites_of, sum_over_images
from lingraft.solver.bounds import SiteBounds, bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.crown import pass_back, relaxed
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.rows import Rows

#: Keeps quotients finite.
_TINY = 1e-30


@dataclass(frozen=True)
class Harm:
    """[q]₋·t summed over images and over the margins of the label against every other class.

    q is the coefficient that CROWN's backward pass of the margin has at the neuron, t = −l·u/(u − l) what the upper
    line of its ReLU adds where q is negative: c += [q]₋·t in the dual bound. A smooth neuron, which loses on both
    sides, adds |q|·gap. `bounds` gives l and u: "crown" or "intervals".
    """

    eps: Radius
    bounds: str = "crown"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", radius(self.eps, alike=True))

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → sums ≥ 0, float64, of the neuron shape; 0 where a neuron is grafted or stable."""
        ball = Ball.around(self.eps, data.images.shape, data.clip)
        return sum_over_images("harm", model, data, 1, partial(self._of_image, ball))

    def _of_image(self, ball: Ball, network: Network, images: Tensor, labels: Tensor) -> dict[int, Tensor]:
        found = bound_sites(network, Region.within(ball, images[0]), Budget(), self.bounds)
        rows = coefficients(network, found, margins(network.nodes[-1].size, int(labels[0])).to(images.device))
        harm: dict[int, Tensor] = {}
        sites = sites_of(network)
        for first, parts in network.bends.items():
            for i in parts:
                if i in rows:
                    site = sites[i]
                    weight = -rows[i].clamp(max=0) if site.activation.pieces is not None else rows[i].abs()
                    of_bend = weight.sum(0) * site.activation.gap(*found.bounds[i])
                    harm[first] = harm.get(first, 0.0) + of_bend.masked_fill(site.grafted, 0.0)
        return harm


def per_site(harm: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Harm as a multiple of the mean of its site: raw harm is largest in the last sites and would take them whole."""
    return {name: values / values.mean().clamp(min=_TINY) for name, values in harm.items()}


def per_significance(harm: Mapping[str, Tensor], significance: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a proof gains by grafting a neuron over what the classification loses."""
    mean = torch.cat([values.flatten() for values in significance.values()]).mean()
    return {name: values / (significance[name] + 1e-6 * mean + _TINY) for name, values in harm.items()}


def margins(classes: int, label: int) -> Tensor:
    """Rows (classes − 1, classes), float64: the logit of the label less that of each other class."""
    one = torch.eye(classes, dtype=torch.float64)
    others = torch.arange(classes) != label
    return one[label] - one[others]


def coefficients(network: Network, found: SiteBounds, spec: Tensor) -> dict[int, Tensor]:
    """q (margins, *site) of every site from CROWN's backward pass."""
    seen: dict[int, Tensor] = {}
    relax = relaxed(found.lines)

    def watch(i: int, rows: Rows) -> tuple[Rows, Tensor]:
        seen[i] = rows.coefficients  # whole maps: they came from the logits
        return relax(i, rows)

    pass_back(network, {len(network.nodes) - 1: Rows(spec)}, spec.new_zeros(len(spec)), watch)
    return seen
