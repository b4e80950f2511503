"""How much of a margin's bound may be rounding: sums of large numbers that cancel are not exact in float64 either."""

import torch
from torch import Tensor

from lingraft.verification.bounds import SiteBounds
from lingraft.verification.crown import device_of
from lingraft.verification.network import Network
from lingraft.verification.nodes import Input, Site

#: Roundings, each of a share 2⁻⁵³ of the largest size, that a bound may have suffered for the worse.
ROUNDINGS = 16


class Sizes:
    """The largest numbers that sums in a network are made of, from the sums of its absolute weights."""

    def __init__(self, network: Network):
        self.network = network
        device = device_of(network)
        #: largest sum of absolute weights, and largest constant, of every linear node
        self.linear: dict[int, tuple[float, float]] = {}
        for i, node in enumerate(network.nodes):
            if not isinstance(node, Input | Site):
                shapes = [network.nodes[j].shape for j in node.inputs]
                ones = [torch.ones(1, *shape, dtype=torch.float64, device=device) for shape in shapes]
                constant = node.forward(*[torch.zeros_like(t) for t in ones])
                self.linear[i] = float(node.spread(*ones).max()), float(constant.abs().max())

    def allowance(self, found: SiteBounds, spec: Tensor, offset: Tensor) -> Tensor:
        """By how much (L,) a bound of spec·logits + offset in float64 may exceed the true one.

        Below 1e-9 for ordinary weights, where the margin that every proof must have covers it; not so for weights of
        1e10. Sizes do not grow from layer to layer as the bounds of every site are known.
        """
        sizes: list[float] = []
        for i, node in enumerate(self.network.nodes):
            largest = max((sizes[j] for j in node.inputs), default=0.0)
            if isinstance(node, Input):
                sizes.append(_largest(found.center.abs() + found.radius))
            elif isinstance(node, Site):
                size = min(largest, max(map(_largest, found.bounds[i])))
                line = size * _largest(node.slope * node.grafted) + _largest(node.intercept * node.grafted)
                sizes.append(max(size if node.kind == "relu" else 1.0, line))
            else:
                weight, constant = self.linear[i]
                sizes.append(weight * largest + constant)
        total = max(sizes) + sizes[-1] * spec.abs().sum(1) + offset.abs()
        return ROUNDINGS * 2.0**-53 * total


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
