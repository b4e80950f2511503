"""Interval arithmetic over a network: the cheapest bounds, and the widest."""

import torch
from torch import Tensor

from lingraft.verification.network import Network
from lingraft.verification.nodes import Input, Node, Site

#: What an operation on large numbers may round away, as a share of their size: 16 times what a single rounding does.
ROUNDING = 16 * 2.0**-53


def through_linear(node: Node, bounds: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Bounds (N, *shape) of a linear node from those of its inputs, widened by a share of what its sums are made of."""
    centers = [(upper + lower) / 2 for lower, upper in bounds]
    radii = [(upper - lower) / 2 for lower, upper in bounds]
    center = node.forward(*centers)
    radius = node.spread(*[torch.add(r, c.abs().add_(r), alpha=ROUNDING) for c, r in zip(centers, radii, strict=True)])
    radius = radius + ROUNDING * center.abs()
    return center - radius, center + radius


def through_site(site: Site, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of the outputs: every activation is monotone, and so is a line, up or down."""
    ends = site.forward(lower), site.forward(upper)
    return torch.minimum(*ends), torch.maximum(*ends)


def interval_bounds(network: Network, lower: Tensor, upper: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    """Pre-activation bounds (N, *shape) of every site for boxes (N, *input_shape); keys are positions of the sites."""
    values: list[tuple[Tensor, Tensor]] = []
    found = {}
    for i, node in enumerate(network.nodes):
        inputs = [values[j] for j in node.inputs]
        if isinstance(node, Input):
            values.append((network.inside(lower), network.inside(upper)))
        elif isinstance(node, Site):
            found[i] = inputs[0]
            values.append(through_site(node, *inputs[0]))
        else:
            values.append(through_linear(node, inputs))
    return found
