"""A question about many boxes of the input, each with margins of its own: those that are easy are proven together."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.solver.box_bounds import BoxBounds
from lingraft.solver.boxes import cuts, halves
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.halfspaces import clipped
from lingraft.solver.intervals import share
from lingraft.solver.margin import proven
from lingraft.solver.moving import moving_part
from lingraft.solver.network import Network
from lingraft.solver.rounding import Sizes

#: Boxes that are bounded at once, so that what is computed of them stays near the processor.
BATCH = 256

#: A box that has more open pieces than this, or pieces that were cut in half more often, is left to others.
PIECES, CUTS = 256, 40

#: Fewer boxes than this, in which the same inputs move, are no group of their own.
FEW = 16


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
        right = torch.zeros(len(self.lower), dtype=torch.bool, device=self.lower.device)
        for group, moving in self._groups():
            if bool(moving.all()):
                right[group] = self._easy(group, self.lower[group], self.upper[group], network, sizes, budget)
            elif budget.left > 0:
                part = moving_part(network, moving)
                ends = [part.boxes(network, self.lower[some], self.upper[some]) for some in group.split(BATCH)]
                lower, upper = (torch.cat(side) for side in zip(*ends, strict=True))
                # behind a pole what does not move has no bounds either
                known = (torch.isfinite(lower) & torch.isfinite(upper)).all(1)
                group, lower, upper = group[known], lower[known], upper[known]
                right[group] = self._easy(group, lower, upper, part.network, Sizes(part.network), budget)
        return right

    def _groups(self) -> list[tuple[Tensor, Tensor]]:
        """Numbers of boxes, and which of the inputs (n,) move in any of them: boxes are together where these are alike.

        Sets of few boxes are one group.
        """
        sets, of, counts = (self.upper > self.lower).unique(dim=0, return_inverse=True, return_counts=True)
        found = [((of == i).nonzero().flatten(), sets[i]) for i in (counts >= FEW).nonzero().flatten().tolist()]
        rare = (counts < FEW)[of].nonzero().flatten()
        return [*found, (rare, sets[counts < FEW].any(0))] if len(rare) else found

    def _easy(
        self, owners: Tensor, lower: Tensor, upper: Tensor, network: Network, sizes: Sizes, budget: Budget
    ) -> Tensor:
        """Which boxes (B,) of a network, those of the `owners` (B,), are proven."""
        owner = torch.arange(len(owners), device=owners.device)
        failed = torch.zeros(len(owners), dtype=torch.bool, device=owner.device)
        for _ in range(CUTS + 1):
            pieces = []
            for some in torch.arange(len(owner), device=owner.device).split(BATCH):
                some = some[~failed[owner[some]]]
                if not len(some):
                    continue
                of = owner[some]
                try:
                    left, *parts = self._bounded(network, sizes, budget, owners[of], lower[some], upper[some])
                    of = of[left]
                    pieces.append((of.repeat(2), *halves(parts[0], parts[1], parts[2])))
                except Exhausted:  # the time is over, or a box cannot be cut any more
                    failed[of] = True
            if not pieces:
                break
            owner, lower, upper = (torch.cat(part) for part in zip(*pieces, strict=True))
            failed |= torch.bincount(owner, minlength=len(failed)) > PIECES
        else:
            failed[owner] = True
        return ~failed

    def _bounded(
        self, network: Network, sizes: Sizes, budget: Budget, owner: Tensor, lower: Tensor, upper: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of boxes (B, n), which are parts of their owners (B,): the numbers of those that are not right everywhere,

        the parts of them that are left, from lower to upper, and the inputs to cut these at.
        """
        bounds, last = BoxBounds(network, lower, upper, sizes, budget, dearer=1.0), len(network.nodes) - 1
        zero = self.spec.new_zeros(len(self.spec))
        below, rows, _ = bounds.functions(last, self.spec, zero)
        index, shift = self.index[owner], self.shift[owner]

        def shifted(bound: Tensor) -> Tensor:
            """Lower bounds (B, L, K) of what the boxes are asked for, from those (B, R) of spec·outputs."""
            parts = bound.gather(1, index.flatten(1)).view(index.shape)
            return parts + shift - share(1) * (parts.abs() + shift.abs())

        linear = shifted(below)
        margin = torch.maximum(linear, shifted(bounds.intervals(last, self.spec, zero))).amax(2)
        open_ = ~proven(margin)
        box = open_.any(1).nonzero().flatten()
        of_box = rows[box[:, None], index[box].flatten(1)].unflatten(1, index.shape[1:])
        low, high = clipped(lower[box], upper[box], linear[box], of_box, open_[box])
        harm = bounds.harm(last, self.spec[index[box, margin[box].argmin(1), 0]], box)[box]
        harm = harm * ((high - low) / (upper[box] - lower[box])).nan_to_num(0.0)  # what is clipped off did its harm
        left = (~(low > high).any(1)).nonzero().flatten()  # NaN is not empty
        low, high = low[left], high[left]
        return box[left], low, high, cuts(low, high, harm[left])
