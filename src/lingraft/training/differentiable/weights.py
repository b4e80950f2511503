"""How much of a neuron its successors take: the sizes of the weights on its way to the next activations."""

from typing import Any

import torch
from torch import Tensor, fx

from lingraft.device import device_of
from lingraft.training.differentiable.graph import BoundedGraph
from lingraft.training.differentiable.intervals import Interval, Propagation


def outgoing_weights(graph: BoundedGraph, shape: tuple[int, ...]) -> dict[str, Tensor]:
    """Site name → Σ|w| for each neuron, of the neuron shape, over all that it goes into before the next activation.

    That is how much the widths of the next pre-activations and logits grow in all with the width of the neuron's own
    interval, for images of `shape`. Batch norm, averages and shortcuts count as the weights that they are; where max
    pooling chooses among equals, one of them is chosen.
    """
    image = torch.zeros(1, *shape, device=device_of(graph.module), dtype=next(graph.module.parameters()).dtype)
    with torch.enable_grad():
        widths = _UnitWidths(graph)
        last = widths.run(Interval(image, image))
        layer = graph.last_layer
        radius = (last.upper - last.lower) / 2
        reached = [(x.upper - x.lower) / 2 for x in widths.found.values()]
        reached.append(radius if layer is None else radius @ layer.weight.abs().T)
        leaves = list(widths.leaves.values())
        total = sum((x.sum() for x in reached), start=torch.zeros(()))
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return {
        name: (torch.zeros_like(leaf) if gradient is None else gradient)[0].detach()
        for (name, leaf), gradient in zip(widths.leaves.items(), gradients, strict=True)
    }


class _UnitWidths(Propagation):
    """Intervals that are cut off behind each site, where [−1, 1] takes their place."""

    def __init__(self, graph: BoundedGraph):
        super().__init__(graph)
        self.leaves: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if n not in self.sites:
            return found
        leaf = torch.ones_like(found.lower).requires_grad_()
        self.leaves[self.sites[n].name] = leaf
        return Interval(-leaf, leaf)
