"""The proof of one margin by splits: does the tree cover the region, and does every leaf prove the margin there?"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lingraft.certificates.collapse import Collapsed
from lingraft.certificates.dual import bound, margin, signed_taps
from lingraft.certificates.format import EMPTY, LEAF, Rejected, Tree
from lingraft.certificates.rounding import Array
from lingraft.certificates.rows import Integers

#: Numbers (taps × domains) that are bounded at once.
BATCH = 400_000

SLOPES = np.arange(256) / 255


def check_tree(of: Collapsed, order: Integers, column: int, tree: Tree) -> None:
    """Return if the tree proves margin `column` of the collapsed network; `order` is the tap of each one it names."""
    try:
        _Proof(of, order, column, tree).check()
    except Rejected as error:
        raise Rejected(f"margin {tree.margin}: {error}") from error


@dataclass
class _Leaf:
    """Splits (named tap, ±1) from the root down, rounds in use, and where its multipliers start, −1 if EMPTY."""

    taps: list[int]
    sides: list[int]
    in_force: int
    alpha: int
    beta: int


class _Proof:
    def __init__(self, of: Collapsed, order: Integers, column: int, tree: Tree):
        self.of, self.order, self.tree = of, order, tree
        self.goal = margin(of, column)
        self.width = max(1, BATCH // max(1, of.count))
        #: slopes of open taps that the certificate does not name
        self.usual = (of.upper > -of.lower).astype(np.float64)

    def check(self) -> None:
        """Rounds first, then all leaves, in groups that use the same rounds."""
        stages = self._rounds()
        waiting: dict[int, list[_Leaf]] = {}
        for leaf in self._leaves(len(stages) - 1):
            group = waiting.setdefault(leaf.in_force, [])
            group.append(leaf)
            if len(group) == self.width:
                self._check_leaves(waiting.pop(leaf.in_force), *stages[leaf.in_force])
        for in_force, group in waiting.items():
            self._check_leaves(group, *stages[in_force])

    def _slopes(self, alpha: np.ndarray) -> Array:
        """(T, B) from rows (B, named taps) of the certificate."""
        result = np.repeat(self.usual[:, None], len(alpha), axis=1)
        result[self.order] = SLOPES[alpha].T
        return result

    def _exist(self, taps: np.ndarray) -> bool:
        return not len(taps) or bool(taps.min() >= 0 and taps.max() < len(self.order))

    def _rounds(self) -> list[tuple[Array, Array]]:
        """Bounds (T,) of all taps where the margin is ≤ 0, after 0, 1, 2 … rounds."""
        of, rounds = self.of, self.tree.rounds
        if not ((rounds.gamma >= 0).all() and np.isin(rounds.sides, (-1, 1)).all() and self._exist(rounds.taps)):
            raise Rejected("a round with a negative multiplier, an impossible side or an impossible tap")
        stages = [(of.lower, of.upper)]
        first = 0
        for size in rounds.sizes.tolist():
            lower, upper = stages[-1]
            tighter = lower.copy(), upper.copy()
            for start in range(first, first + size, self.width):
                some = slice(start, min(start + self.width, first + size))
                taps, sides = self.order[rounds.taps[some]], rounds.sides[some].astype(np.float64)
                rows = signed_taps(of, taps, sides, rounds.gamma[some].astype(np.float64), self.goal)
                value = bound(of, rows, lower[:, None], upper[:, None], self._slopes(rounds.alpha[some]), None)
                value[~np.isfinite(value)] = -np.inf  # an overflow proves nothing
                np.maximum.at(tighter[0], taps[sides > 0], value[sides > 0])
                np.minimum.at(tighter[1], taps[sides < 0], -value[sides < 0])
            stages.append(tighter)
            first += size
        return stages

    def _leaves(self, rounds: int) -> Iterator[_Leaf]:
        """The leaves in preorder. A list that ends early or late is no tree, so no leaf can be missing."""
        tree = self.tree
        if not self._exist(tree.nodes[tree.nodes >= 0]) or (tree.nodes < EMPTY).any():
            raise Rejected("a split of a tap that does not exist")
        if ((tree.in_force < 0) | (tree.in_force > rounds)).any():
            raise Rejected("a leaf uses rounds that do not exist")
        taps: list[int] = []
        sides: list[int] = []
        leaf = alpha = beta = 0
        for i, node in enumerate(tree.nodes.tolist()):
            if i and not sides:
                raise Rejected("the tree has too many nodes")
            if node >= 0:
                taps.append(node)
                sides.append(1)
                continue
            if leaf >= len(tree.in_force):
                raise Rejected("a leaf is not described")
            places = (alpha, beta) if node == LEAF else (-1, -1)
            yield _Leaf(taps.copy(), sides.copy(), int(tree.in_force[leaf]), *places)
            leaf += 1
            if node == LEAF:
                alpha, beta = alpha + 1, beta + len(taps)
            while sides and sides[-1] == -1:
                taps.pop()
                sides.pop()
            if sides:
                sides[-1] = -1
        if sides or not leaf:
            raise Rejected("the tree is not complete, a leaf is missing")
        if leaf != len(tree.in_force) or alpha != len(tree.alpha) or beta != len(tree.beta):
            raise Rejected("the multipliers do not fit the tree")

    def _check_leaves(self, leaves: list[_Leaf], root_lower: Array, root_upper: Array) -> None:
        lower, upper = (np.repeat(t[:, None], len(leaves), axis=1) for t in (root_lower, root_upper))
        push = np.zeros_like(lower)
        for column, leaf in enumerate(leaves):
            taps, sides = self.order[leaf.taps], np.array(leaf.sides)
            up_side, low_side = taps[sides > 0], taps[sides < 0]
            lower[up_side, column] = np.maximum(lower[up_side, column], 0.0)
            upper[low_side, column] = np.minimum(upper[low_side, column], 0.0)
            if leaf.alpha >= 0:
                beta = self.tree.beta[leaf.beta : leaf.beta + len(taps)]
                if len(beta) != len(taps):
                    raise Rejected("multipliers are missing")
                np.add.at(push[:, column], taps, sides * beta.astype(np.float64))
        empty = (lower > upper).any(0)
        left = np.array([leaf.alpha >= 0 for leaf in leaves]) & ~empty
        if not (left | empty).all():
            raise Rejected("a leaf that is said to be empty is not")
        columns = left.nonzero()[0]
        if not len(columns):
            return
        which = [leaves[i].alpha for i in columns]
        if max(which) >= len(self.tree.alpha):
            raise Rejected("multipliers are missing")
        alpha = self._slopes(self.tree.alpha[which])
        value = bound(self.of, self.goal, lower[:, columns], upper[:, columns], alpha, push[:, columns])
        if not ((value > 0) & np.isfinite(value)).all():
            raise Rejected(f"a leaf is not proven: its bound is {np.nanmin(value):.6g}")
