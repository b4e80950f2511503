"""How much of a bound may be rounding: sums of large numbers that cancel are not exact in float64 either.

A sum of n terms loses up to about n·u of their sizes (`intervals.share`), so the losses grow with the number of values
of a network as well as with its weights. For ordinary ones they are around 1e-9, where the margin that every proof must
have covers them; not so for weights of 1e5 that cancel in one layer and are large again in the next, or for sums of
100,000 terms. `lingraft.checker` accounts for all this again, with nothing taken on trust.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lingraft.solver.intervals import share
from lingraft.solver.network import Network, device_of
from lingraft.solver.nodes import Input, Site
from lingraft.solver.rows import Rows

if TYPE_CHECKING:
    from lingraft.solver.bounds import SiteBounds


class Sizes:
    """The largest numbers that sums in a network are made of, from the sums of its absolute weights."""

    def __init__(self, network: Network):
        self.network = network
        device = device_of(network)
        #: largest sum of absolute weights, and largest constant, of every linear node
        self.linear: dict[int, tuple[float, float]] = {}
        values = sum(node.size for node in network.nodes if isinstance(node, Input | Site))
        #: what rows over a node's values may lose there, as a share of their coefficients times its size: whatever is
        #: added up behind it, here or in the collapsed network, has no more terms than there are values and nodes
        self.share = share(max(values, *(node.size for node in network.nodes)) + len(network.nodes))
        for i, node in enumerate(network.nodes):
            if not isinstance(node, Input | Site):
                shapes = [network.nodes[j].shape for j in node.inputs]
                ones = [torch.ones(1, *shape, dtype=torch.float64, device=device) for shape in shapes]
                constant = node.forward(*[torch.zeros_like(t) for t in ones])
                self.linear[i] = float(node.spread(*ones).max()), float(constant.abs().max())

    def of(self, i: int, before: list[float], found: "SiteBounds") -> float:
        """The largest size of node `i`'s sums, from those `before` it.

        It does not grow without end, as the bounds of every site up to here are known.
        """
        node = self.network.nodes[i]
        largest = max((before[j] for j in node.inputs), default=0.0)
        if isinstance(node, Input):
            return _largest(found.center.abs() + found.radius)
        if isinstance(node, Site):
            size = min(largest, max(map(_largest, found.bounds[i])))
            line = size * _largest(node.slope * node.grafted) + _largest(node.intercept * node.grafted)
            record = node.activation
            reached = record.size(size)
            if record.pieces is None:  # a reciprocal is as large as it is between the bounds
                reached = min(reached, max(map(_largest, record.between(*found.bounds[i]))))
            return max(reached, line)
        weight, constant = self.linear[i]
        return weight * largest + constant


def allowance(losses: list[float], size: float, spec: Tensor, offset: Tensor) -> Tensor:
    """By how much (L,) spec·logits + offset may be too large, where the logits' bounds are widened on the way.

    `size` is that of the logits; as much as any node loses is allowed for in any case.
    """
    sums = size * spec.abs().sum(1) + offset.abs()
    return max(losses) + share(2 * spec.shape[1]) * sums


class Loss:
    """What rounding may add to rows on their way back: at every node its `losses`, times the rows' coefficients."""

    def __init__(self, losses: list[float]):
        self.losses = losses
        self.total: Tensor | float = 0.0

    def __call__(self, i: int, rows: Rows) -> None:
        """Rows are at node `i`."""
        size = torch.linalg.vector_norm(rows.coefficients.flatten(1), 1, dim=1)
        self.total = self.total + self.losses[i] * size


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
