"""A question about many boxes of the input, each with margins of its own: those that are easy are proven together."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.solver.box_bounds import BoxBounds
from lingraft.solver.boxes import cuts, halves
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.intervals import share
from lingraft.solver.margin import proven
from lingraft.solver.network import Network
from lingraft.solver.rounding import Sizes

#: Boxes that are bounded at once, so that what is computed of them stays near the processor, and how often each may be
#: cut in half before it is left to others.
BATCH, CUTS = 128, 8


@dataclass
class ManyBoxes:
    """N boxes from `lower` to `upper` (N, n), flat in the inner order, in float64.

    Box i is right where for each j some spec[index[i, j, k]]·outputs + shift[i, j, k] is positive. `spec` is
    (R, outputs), `index` and `shift` are (N, L, K).
    """

    lower: Tensor
    upper: Tensor
    spec: Tensor
    index: Tensor
    shift: Tensor

    def easy(self, network: Network, sizes: Sizes, budget: Budget) -> Tensor:
        """Which of them (N,) are proven by CROWN after few cuts, in time; nothing is said about the others."""
        count = len(self.lower)
        owner = torch.arange(count, device=self.lower.device)
        lower, upper = self.lower, self.upper
        failed = torch.zeros(count, dtype=torch.bool, device=owner.device)
        for _ in range(CUTS + 1):
            pieces = []
            for some in torch.arange(len(owner), device=owner.device).split(BATCH):
                some = some[~failed[owner[some]]]
                if not len(some):
                    continue
                try:
                    right, cut = self._bounded(network, sizes, budget, owner[some], lower[some], upper[some])
                    left = some[~right]
                    pieces.append((owner[left].repeat(2), *halves(lower[left], upper[left], cut[~right])))
                except Exhausted:  # the time is over, or a box cannot be cut any more
                    failed[owner[some]] = True
            if not pieces:
                break
            owner, lower, upper = (torch.cat(part) for part in zip(*pieces, strict=True))
        else:
            failed[owner] = True
        return ~failed

    def _bounded(
        self, network: Network, sizes: Sizes, budget: Budget, owner: Tensor, lower: Tensor, upper: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Which boxes (B,) are right, being parts of their owners (B,), and where to cut the others."""
        bounds, last = BoxBounds(network, lower, upper, sizes, budget, dearer=0.0), len(network.nodes) - 1
        zero = self.spec.new_zeros(len(self.spec))
        below = torch.maximum(bounds.functions(last, self.spec, zero)[0], bounds.intervals(last, self.spec, zero))
        index, shift = self.index[owner], self.shift[owner]
        parts = below.gather(1, index.flatten(1)).view(index.shape)
        values = (parts + shift - share(1) * (parts.abs() + shift.abs())).amax(2)
        box = torch.arange(len(owner), device=owner.device)
        harm = bounds.harm(last, self.spec[index[:, 0, 0]], box)
        return proven(values).all(1), cuts(lower, upper, harm)
