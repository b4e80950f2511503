"""Which values of a network its margins depend on: their cone of influence.

Where a property is about few outputs of a map, most of what the last convolutions compute has no part in it, and
neither needs bounds nor is searched.
"""

import torch
from torch import Tensor

from lingraft.solver.intervals import counting
from lingraft.solver.network import Network
from lingraft.solver.nodes import Input, Site
from lingraft.solver.rows import Rows


def visible(network: Network, spec: Tensor) -> list[Tensor] | None:
    """For each node, which of its values (its shape) spec·logits (L rows) can depend on; None if on those of all sites.

    It does not where every way leads over a weight of exactly 0, or over a grafted neuron with a slope of 0.
    """
    seen = [torch.zeros(node.shape, dtype=torch.bool, device=spec.device) for node in network.nodes]
    seen[-1] = (spec != 0).any(0).view(network.nodes[-1].shape)
    for i in range(len(network.nodes) - 1, 0, -1):
        node = network.nodes[i]
        if isinstance(node, Input) or not bool(seen[i].any()):
            continue
        if isinstance(node, Site):
            parts = [seen[i] & ~(node.grafted & (node.slope == 0))]
        else:
            counted, _ = counting(node).back(Rows(seen[i].double()[None]))
            shapes = [network.nodes[j].shape for j in node.inputs]
            parts = [rows.whole(shape).coefficients[0] != 0 for rows, shape in zip(counted, shapes, strict=True)]
        for j, part in zip(node.inputs, parts, strict=True):
            seen[j] = seen[j] | part
    return None if all(bool(seen[i].all()) for i in network.sites) else seen
