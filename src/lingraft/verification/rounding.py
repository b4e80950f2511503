"""How much of a margin's bound may be rounding: sums of large numbers that cancel are not exact in float64 either.

These are estimates of what `lingraft.certificates` accounts for in full. For ordinary weights they are around 1e-11,
where the margin that every proof must have covers them; not so for weights of 1e5 that cancel in one layer and are
large again in the next.
"""

import torch
from torch import Tensor

from lingraft.verification.bounds import SiteBounds
from lingraft.verification.crown import device_of
from lingraft.verification.intervals import ROUNDING
from lingraft.verification.network import Network
from lingraft.verification.nodes import Input, Site
from lingraft.verification.rows import Rows


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

    def of(self, found: SiteBounds) -> list[float]:
        """The largest size of each node's sums; it does not grow without end, as the bounds of every site are known."""
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
        return sizes


def allowance(sizes: list[float], spec: Tensor, offset: Tensor) -> Tensor:
    """By how much (L,) spec·logits + offset may be too large, where the logits' bounds are widened on the way."""
    return ROUNDING * (max(sizes) + sizes[-1] * spec.abs().sum(1) + offset.abs())


class Loss:
    """What rounding may add to rows on their way back: a share of the sums of every node, times its coefficients."""

    def __init__(self, sizes: list[float]):
        self.sizes = sizes
        self.total: Tensor | float = 0.0

    def __call__(self, i: int, rows: Rows) -> None:
        """Rows are at node `i`."""
        self.total = self.total + ROUNDING * self.sizes[i] * rows.coefficients.abs().flatten(1).sum(1)


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
