"""The regularizers that keep interval bounds trainable while the radius grows.

Paper: Shi et al., "Fast certified robust training with short warmup", NeurIPS 2021, Section 4.3.
"""

import torch
from torch import Tensor

from lingraft.training.differentiable import BoundedGraph
from lingraft.training.differentiable.intervals import Interval, IntervalBounds

#: τ: what a ratio may fall to before it costs anything
TOLERANCE = 0.5


def tightness(found: IntervalBounds) -> Tensor:
    """How far the bounds have grown: the mean over the sites of [τ − E(Δ₀)/E(Δ)]₊ / τ, in [0, 1].

    Δ are the widths of the pre-activations' bounds, Δ₀ those of what goes into the first layer.
    """
    first = _width(found.first)
    return torch.stack([_below(first / _width(site).clamp(min=1e-12)) for site in found.sites.values()]).mean()


def balance(graph: BoundedGraph, found: IntervalBounds) -> Tensor:
    """How uneven active and inactive ReLUs are: the mean over the sites of [τ − m]₊ / τ + [τ − v]₊ / τ, in [0, 2].

    m and v compare the neurons that are active on the whole box with those that are inactive: the smaller part of the
    centers' mean, and of their variance, divided by the larger part. A site where no neuron is stable counts as 0.
    """
    activations = {site.name: site.activation for site in graph.sites.values()}
    parts = []
    for name, (lower, upper) in found.sites.items():
        pieces = activations[name].pieces
        if pieces is None or not pieces.is_relu:
            continue
        center = (lower + upper) / 2
        spread = (center - center.mean()) ** 2
        active, inactive = lower > 0, upper < 0
        mean = _ratio((center * active).sum(), -(center * inactive).sum())
        variance = _ratio((spread * active).sum(), (spread * inactive).sum())
        parts.append(torch.where((active | inactive).any(), _below(mean) + _below(variance), 0.0))
    return torch.stack(parts).mean() if parts else torch.zeros((), device=found.first.lower.device)


def _width(x: Interval) -> Tensor:
    return (x.upper - x.lower).mean()


def _below(ratio: Tensor) -> Tensor:
    return (TOLERANCE - ratio).clamp(min=0) / TOLERANCE


def _ratio(one: Tensor, other: Tensor) -> Tensor:
    larger = torch.maximum(one, other)
    return torch.minimum(one, other) / torch.where(larger > 0, larger, 1.0)
