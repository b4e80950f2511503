"""Branch and bound over the input, for networks with few inputs: the region is cut into boxes, many in a batch.

A box is done when all margins are proven on it. Of one that is not, what a bound of the margins shows to have no
counterexample is clipped off, and the rest is cut in half at the input that the relaxations suffer most from. Bounds
become exact as boxes shrink, whatever the activations are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.solver.bab import Falsified
from lingraft.solver.box_bounds import DEARER, BoxBounds
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.clock import worked
from lingraft.solver.halfspaces import clipped, combined
from lingraft.solver.margin import proven
from lingraft.solver.network import Network
from lingraft.solver.proof import BoxProof, Cut
from lingraft.solver.quadratic import Quadratics
from lingraft.solver.rounding import Sizes

#: Regions with at most so many inputs that have any width are worth cutting: halving each once makes a million boxes.
FEW_INPUTS = 20

#: Larger batches are faster; one should take about this number of seconds, so that the worst boxes come first.
PACE = 0.4

#: (points (N, n) in the inner order) → a witness or None.
Attack = Callable[[Tensor], Tensor | None]


@dataclass
class Boxes:
    """N boxes from `lower` to `upper` (N, n), flat in the inner order, and how low the margins may be (N,) there.

    `cut` (N,) is the input to cut them at, `node` (N,) their number in a proof, `wanted` (N, L) says which margins are
    not proven on what they are parts of.
    """

    lower: Tensor
    upper: Tensor
    bound: Tensor
    cut: Tensor
    node: Tensor
    wanted: Tensor

    @classmethod
    def whole(cls, lower: Tensor, upper: Tensor, margins: int) -> "Boxes":
        """One box from lower to upper (n,), for that many margins."""
        bound = torch.full((1,), -torch.inf, dtype=torch.float64, device=lower.device)
        widest = (upper - lower).argmax()[None]
        wanted = torch.ones(1, margins, dtype=torch.bool, device=lower.device)
        return cls(lower[None].double(), upper[None].double(), bound, widest, torch.zeros_like(widest), wanted)

    def __len__(self) -> int:
        return len(self.bound)

    def select(self, which: Tensor) -> "Boxes":
        """Some of them."""
        return Boxes(*(tensor[which] for tensor in vars(self).values()))

    @classmethod
    def join(cls, parts: "list[Boxes]") -> "Boxes":
        """All in one."""
        return cls(*(torch.cat(tensors) for tensors in zip(*(vars(part).values() for part in parts), strict=True)))

    def halves(self, first: int) -> "Boxes":
        """Both halves of every box, with numbers from `first` on: first all lower ones, then all upper ones."""
        lower, upper = halves(self.lower, self.upper, self.cut)
        node = torch.arange(first, first + len(lower), device=self.node.device)
        return Boxes(lower, upper, self.bound.repeat(2), self.cut.repeat(2), node, self.wanted.repeat(2, 1))


def halves(lower: Tensor, upper: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """Both halves (2·N, n) of boxes (N, n), cut in the middle of input `cut` (N,): first all lower ones."""
    row = torch.arange(len(cut), device=cut.device)
    low, high = lower[row, cut], upper[row, cut]
    middle = low + (high - low) / 2
    if bool(((middle <= low) | (middle >= high)).any()):
        raise Exhausted("numerical")  # there is no number between them
    over, under = lower.clone(), upper.clone()
    over[row, cut], under[row, cut] = middle, middle
    return torch.cat([lower, over]), torch.cat([under, upper])


@dataclass
class Maxima:
    """Outputs of a network that are maxima: output i is the largest of values[i] (outputs, K), numbers in `node`."""

    node: int
    values: Tensor


class BoxSearch:
    """Proves the margins spec·logits + offset (L) on boxes; raises Falsified or Exhausted.

    `open` are the boxes that are not proven yet, also after the time was over. What is done is kept in a `proof`.
    """

    def __init__(
        self,
        network: Network,
        sizes: Sizes,
        spec: Tensor,
        offset: Tensor,
        boxes: Boxes,
        attack: Attack,
        maxima: Maxima | None = None,
        memory: float = float("inf"),
        proof: BoxProof | None = None,
    ):
        self.network, self.sizes, self.spec, self.offset = network, sizes, spec, offset
        self.open, self.attack, self.maxima, self.proof = boxes, attack, maxima, proof
        #: rows (L, K, size) over the node of the maxima, that pick what each margin is a multiple of the maximum of
        self.picked: Tensor | None = None
        if maxima is not None and bool(((spec > 0).sum(1) == 1).all() and ((spec != 0).sum(1) == 1).all()):
            every = torch.eye(network.nodes[maxima.node].size, dtype=spec.dtype, device=spec.device)
            self.picked = every[maxima.values.to(spec.device)[spec.argmax(1)]] * spec.amax(1)[:, None, None]
        self.visited = 0
        self.batch = 16
        #: boxes fit that many at once, at about twenty tensors over their values each
        self.widest = max(1, int(min(4096, memory / 4 / (160 * sum(node.size for node in network.nodes)))))

    def run(self, budget: Budget, stop: Callable[[], bool] = lambda: False) -> bool:
        """Whether all boxes are proven; not if `stop`, asked before every batch, says so first."""
        while len(self.open):
            if stop():
                return False
            budget.check_time()
            budget.allow(8 * 32 * self.open.lower.numel())
            started = worked(self.open.lower.device)
            order = self.open.bound.argsort()
            taken, left = order[: self.batch], order[self.batch :]
            some = self.open.select(taken)
            self.open = Boxes.join([self.open.select(left), self._bounded(self._cut(some), budget)])
            spent = worked(self.open.lower.device) - started
            if spent < PACE:
                self.batch = min(2 * self.batch, self.widest)
            elif spent > 2 * PACE:
                self.batch = max(1, self.batch // 2)
        return True

    def _cut(self, boxes: Boxes) -> Boxes:
        """Both halves of each, or the first box, of which nothing is known yet."""
        if not self.visited:
            return boxes
        parts = boxes.halves(self.visited)
        if self.proof is not None:
            inner = torch.arange(len(boxes), device=boxes.cut.device)
            self.proof.cuts.append(Cut(boxes.node, boxes.cut, parts.upper[inner, boxes.cut], self.visited))
        return parts

    def _bounded(self, boxes: Boxes, budget: Budget) -> Boxes:
        """What is left to prove of the boxes, clipped, with their bounds."""
        self.visited += len(boxes)
        dearer = DEARER if self.proof is None else torch.inf  # a checker has rows, and no forms that go forward
        last = len(self.network.nodes) - 1 if self.picked is None or self.maxima is None else self.maxima.node
        bounds = BoxBounds(self.network, boxes.lower, boxes.upper, self.sizes, budget, dearer, last)
        margin, below, rows, shares = self._functions(bounds, last, boxes.wanted)
        known = torch.isfinite(margin)
        if self.proof is not None and not bool(known.all()):
            raise Exhausted("numerical")
        # a pole, or an overflow, in the bounds of a box need not be in those of its halves
        margin = torch.where(known, margin, -torch.inf)
        below = torch.where(known[:, :, None], below, -torch.inf)
        rows = torch.where(known[:, :, None, None], rows, 0.0)
        open_ = ~proven(margin) & boxes.wanted
        self._look(bounds, boxes, margin, rows)
        lower, upper = clipped(boxes.lower, boxes.upper, below, rows, open_)
        # what is clipped off has done its harm
        harm = self._harm(bounds, shares, open_) * (upper - lower) / (boxes.upper - boxes.lower)
        harm = torch.where(known.all(1, keepdim=True), harm, 0.0)
        left = open_.any(1) & ~(lower > upper).any(1)
        if self.proof is not None:
            changed = ((lower > boxes.lower) | (upper < boxes.upper)).any(1)
            self.proof.keep(boxes.node, left, changed, shares)
        bound, cut = torch.where(open_, margin, torch.inf).amin(1), cuts(lower, upper, harm)
        wanted = open_ if self.proof is None else boxes.wanted  # a checker looks at each box by itself
        return Boxes(lower, upper, bound, cut, boxes.node, wanted).select(left)

    def _functions(self, bounds: BoxBounds, node: int, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Bounds (B, L) of the margins, the functions whose maximum each is and, behind them, their best combination.

        That is, bounds (B, L, K), rows (B, L, K, n) and shares in the combination; K is 1 for a margin that is no
        maximum.
        """
        if self.picked is None:
            below, rows, _ = bounds.functions(node, self.spec, self.offset, wanted)
            margin = torch.maximum(bounds.intervals(node, self.spec, self.offset), below)
            return margin, below[:, :, None], rows[:, :, None], torch.ones_like(below)[:, :, None]
        size = self.picked.shape[:2]
        spec, offset = self.picked.flatten(0, 1), self.offset[:, None].expand(size).flatten()
        below, rows, curves = bounds.functions(node, spec, offset, wanted.repeat_interleave(size[1], 1))
        margin = torch.maximum(bounds.intervals(node, spec, offset), below).unflatten(1, size).amax(2)
        below, rows = (t.unflatten(1, size) for t in (below, rows))
        box, which = wanted.nonzero(as_tuple=True)
        some = combined(below[box, which][:, None], rows[box, which][:, None], bounds.radius[box])
        least, over, each = (t[:, 0] for t in some)
        if curves is not None:  # functions that bend down and up in the same place are together straighter
            chosen = Quadratics(*(t.unflatten(1, size)[box, which] for t in curves)).weighted(each)
            bent, row, _ = chosen.tangents()
            over = torch.where((bent > least)[:, None], bounds.unscaled(row, box), over)
            least = torch.maximum(least, bent)
        together, row, shares = torch.zeros_like(margin), torch.zeros_like(rows[:, :, 0]), torch.zeros_like(below)
        together[box, which], row[box, which], shares[box, which] = least, over, each
        below, rows = torch.cat([below, together[:, :, None]], 2), torch.cat([rows, row[:, :, None]], 2)
        return torch.maximum(margin, together), below, rows, shares

    def _look(self, bounds: BoxBounds, boxes: Boxes, margin: Tensor, rows: Tensor) -> None:
        """Try the middle of every box, and the corner where its lowest margin should be lowest."""
        row = rows[torch.arange(len(rows)), torch.where(boxes.wanted, margin, torch.inf).argmin(1), -1]
        corner = torch.where(row > 0, boxes.lower, boxes.upper)
        witness = self.attack(torch.cat([bounds.found.center.flatten(1), corner]))
        if witness is not None:
            raise Falsified(witness)

    def _harm(self, bounds: BoxBounds, shares: Tensor, open_: Tensor) -> Tensor:
        """What each input (B, n) takes from the open margins: from their functions (B, L, K) by their shares."""
        box, margin = open_.nonzero(as_tuple=True)
        shares = shares[box, margin]
        if self.picked is None or self.maxima is None:
            return bounds.harm(len(self.network.nodes) - 1, self.spec[margin], box)
        return bounds.harm(self.maxima.node, (shares[:, :, None] * self.picked[margin]).sum(1), box)


def cuts(lower: Tensor, upper: Tensor, harm: Tensor) -> Tensor:
    """The inputs (N,) to cut boxes (N, n) at: those of the greatest harm, the widest where nothing is relaxed."""
    middle = lower + (upper - lower) / 2
    between = (middle > lower) & (middle < upper)
    harm = torch.where(between, harm, 0.0)
    return torch.where(harm.amax(1) > 0, harm.argmax(1), torch.where(between, upper - lower, 0.0).argmax(1))
