"""The proof of one margin by splits: does the tree cover the region, and does every leaf prove the margin there?"""

from dataclasses import dataclass

import numpy as np

from lingraft.checker.budget import STEP
from lingraft.checker.clip import Group, clip, make_groups
from lingraft.checker.collapse import Collapsed
from lingraft.checker.dual import Below, below, margin, signed_taps
from lingraft.checker.facets import make_facets
from lingraft.checker.format import EMPTY, LEAF, Multipliers, Rejected, Tree
from lingraft.checker.rounding import Array
from lingraft.checker.rows import Integers

#: Numbers (taps × domains) that are bounded at once, and (taps and pixels × domains) at most.
BATCH, MOST = 400_000, 4_000_000

SLOPES = np.arange(256) / 255


def check_tree(of: Collapsed, order: Integers, pixels: Integers, column: int, tree: Tree) -> None:
    """Return if the tree proves margin `column` of the collapsed network.

    `order` is the tap, and `pixels` the pixel, that each number in the certificate means.
    """
    held = of.budget.held
    try:
        _Proof(of, order, pixels, column, tree).check()
    except Rejected as error:
        raise Rejected(f"margin {tree.margin}: {error}") from error
    of.budget.held = held


@dataclass
class _Domain:
    """A node of the tree, by its place, and bounds (T,) of the taps from splits and clips above it."""

    node: int
    lower: Array
    upper: Array


class _Proof:
    def __init__(self, of: Collapsed, order: Integers, pixels: Integers, column: int, tree: Tree):
        self.of, self.order, self.tree = of, order, tree
        _pay(of, tree)
        self.goal = margin(of, column)
        self.width = max(1, min(BATCH // max(1, of.count), MOST // (of.count + len(of.radius))))
        #: slopes of open taps that the certificate does not name
        self.usual = (of.upper > -of.lower).astype(np.float64)
        slopes = self._slopes(tree.facets.slopes)[:, 0] if len(tree.facets.slopes) else self.usual
        self.facets = make_facets(of, order, pixels, tree.facets, slopes)
        self.starts = {id(m): _starts(m, self._exist(m.taps)) for m in (tree.multipliers, tree.clips.multipliers)}

    def check(self) -> None:
        """Rounds first; then the nodes, those above before those below, many at a time."""
        self.lower, self.upper = self._rounds()
        children, leaf_of, multipliers_of, depth = self._shape()
        clip_of = self._clips()
        width = self._at_once(depth)
        waiting = [_Domain(0, self.of.lower, self.of.upper)]
        while waiting:
            some, waiting = waiting[-width:], waiting[:-width]
            nodes = np.array([domain.node for domain in some])
            lower, upper = (np.stack([getattr(d, side) for d in some], axis=1) for side in ("lower", "upper"))
            clipped: dict[int, list[int]] = {}
            for column, place in enumerate(nodes.tolist()):
                if place in clip_of:
                    clipped.setdefault(int(self.tree.clips.forms[clip_of[place]]), []).append(column)
            for forms, columns in sorted(clipped.items()):
                self._clip(forms, columns, [clip_of[n] for n in nodes[columns].tolist()], lower, upper)
            self._check_leaves(nodes, leaf_of, multipliers_of, lower, upper)
            for i in np.flatnonzero(self.tree.nodes[nodes] >= 0):
                tap, (above, under) = self.order[self.tree.nodes[nodes[i]]], children[nodes[i]]
                on, off = (_Domain(child, lower[:, i].copy(), upper[:, i].copy()) for child in (above, under))
                on.lower[tap], off.upper[tap] = max(on.lower[tap], 0.0), min(off.upper[tap], 0.0)
                waiting += [on, off]

    # --- form -------------------------------------------------------------------------------------------------------

    def _exist(self, taps: np.ndarray) -> bool:
        return not len(taps) or bool(taps.min() >= 0 and taps.max() < len(self.order))

    def _at_once(self, depth: int) -> int:
        """How many domains are looked at together: on every level of the tree, as many may be waiting."""
        each, budget = 16.0 * self.of.count * (depth + 2), self.of.budget
        width = max(1, min(self.width, int((budget.memory - budget.held) / 2 / max(each, 1.0))))
        budget.hold(width * each)
        # times at which fewer than that are left to look at: each of them ends a level
        times = depth + 1 + len(self.tree.nodes) // width
        budget.work(times * (self.of.work(0) + 10 * STEP))
        return width

    def _shape(self) -> tuple[list[tuple[int, int]], Integers, Integers, int]:
        """Children of every node, its number among leaves, and among leaves with multipliers, by place; the depth.

        Read from its end, a list in preorder is a tree if every split finds two subtrees behind it and one is left in
        the end: so no side of a split can be missing.
        """
        nodes, leaves = self.tree.nodes, self.tree.nodes < 0
        if not self._exist(nodes[~leaves]) or (nodes < EMPTY).any():
            raise Rejected("a split of a tap that does not exist")
        children, roots, depths = [(-1, -1)] * len(nodes), list[int](), [0] * len(nodes)
        for place in range(len(nodes) - 1, -1, -1):
            if nodes[place] >= 0:
                if len(roots) < 2:
                    raise Rejected("the tree is not complete, a leaf is missing")
                above, under = children[place] = roots.pop(), roots.pop()
                depths[place] = 1 + max(depths[above], depths[under])
            roots.append(place)
        if len(roots) != 1:
            raise Rejected("the list of nodes is not one tree")
        if len(self.tree.in_force) != leaves.sum() or len(self.tree.multipliers.alpha) != (nodes == LEAF).sum():
            raise Rejected("multipliers do not fit the tree")
        self._in_force(self.tree.in_force)
        return children, np.cumsum(leaves) - 1, np.cumsum(nodes == LEAF) - 1, depths[0]

    def _in_force(self, rounds: np.ndarray) -> None:
        if len(rounds) and not 0 <= rounds.min() <= rounds.max() < self.lower.shape[1]:
            raise Rejected("rounds are used that do not exist")

    def _clips(self) -> dict[int, int]:
        """The number of the clip of each node that has one."""
        clips = self.tree.clips
        self._in_force(clips.in_force)
        self._in_force(clips.forms_in_force)
        if len(clips.forms) and not 0 <= clips.forms.min() <= clips.forms.max() < len(clips.forms_alpha):
            raise Rejected("forms are used that do not exist")
        if not ((clips.grid > 0) & (clips.grid < 1e6)).all():
            raise Rejected("a negative multiplier in the grid")
        self.groups: dict[int, list[Group]] = {}
        return {node: i for i, node in enumerate(clips.nodes.tolist())}

    # --- bounds -----------------------------------------------------------------------------------------------------

    def _slopes(self, alpha: np.ndarray) -> Array:
        """(T, B) from rows (B, named taps) of the certificate."""
        result = np.repeat(self.usual[:, None], len(alpha), axis=1)
        result[self.order] = SLOPES[alpha].T
        return result

    def _rounds(self) -> tuple[Array, Array]:
        """Bounds (T, rounds + 1) of all taps where the margin is ≤ 0, after 0, 1, 2 … rounds."""
        of, rounds = self.of, self.tree.rounds
        if not ((rounds.gamma >= 0).all() and np.isin(rounds.sides, (-1, 1)).all() and self._exist(rounds.taps)):
            raise Rejected("a round with a negative multiplier, an impossible side or an impossible tap")
        # one without bounds would cost memory all the same, and a file can say millions of them in a few bytes
        if (rounds.sizes < 1).any() or rounds.sizes.sum() != len(rounds.taps):
            raise Rejected("rounds do not fit their bounds")
        stages = [(of.lower, of.upper)]
        first = 0
        for size in rounds.sizes.tolist():
            lower, upper = stages[-1]
            tighter = lower.copy(), upper.copy()
            for start in range(first, first + size, self.width):
                some = slice(start, min(start + self.width, first + size))
                taps, sides = self.order[rounds.taps[some]], rounds.sides[some].astype(np.float64)
                rows = signed_taps(of, taps, sides, rounds.gamma[some].astype(np.float64), self.goal)
                slopes = self._slopes(rounds.alpha[some])
                value = below(of, rows, lower[:, None], upper[:, None], slopes, None, self.facets).bound
                value[~np.isfinite(value)] = -np.inf  # an overflow proves nothing
                np.maximum.at(tighter[0], taps[sides > 0], value[sides > 0])
                np.minimum.at(tighter[1], taps[sides < 0], -value[sides < 0])
            stages.append(tighter)
            first += size
        lowers, uppers = zip(*stages, strict=True)
        return np.stack(lowers, axis=1), np.stack(uppers, axis=1)

    def _below(self, multipliers: Multipliers, which: list[int], lower: Array, upper: Array) -> Below:
        """The margin from below in some domains, with the multipliers number `which`."""
        push = np.zeros_like(lower)
        starts = self.starts[id(multipliers)]
        for column, number in enumerate(which):
            here = slice(starts[number], starts[number + 1])
            taps = self.order[multipliers.taps[here]]
            side = np.where(lower[taps, column] >= 0, 1.0, np.where(upper[taps, column] <= 0, -1.0, 0.0))
            np.add.at(push[:, column], taps, side * multipliers.beta[here].astype(np.float64))
        return below(self.of, self.goal, lower, upper, self._slopes(multipliers.alpha[which]), push, self.facets)

    def _clip(self, forms: int, columns: list[int], which: list[int], lower: Array, upper: Array) -> None:
        """Clip some columns of the bounds, in place."""
        clips = self.tree.clips
        self.of.budget.work(self.of.work(0) + 10 * STEP)
        if forms not in self.groups:
            stage = int(clips.forms_in_force[forms])
            numbers = np.full(self.of.count, -1)
            numbers[self.order] = clips.groups[forms]
            slopes = self._slopes(clips.forms_alpha[forms : forms + 1])[:, 0]
            self.groups[forms] = make_groups(self.of, numbers, self.lower[:, stage], self.upper[:, stage], slopes)
        in_force = clips.in_force[which]
        low, high = (
            np.maximum(lower[:, columns], self.lower[:, in_force]),
            np.minimum(upper[:, columns], self.upper[:, in_force]),
        )
        goal = self._below(clips.multipliers, which, low, high)
        clip(self.of, self.groups[forms], clips.grid.tolist(), goal, low, high)
        lower[:, columns], upper[:, columns] = low, high

    def _check_leaves(
        self, nodes: Integers, leaf_of: Integers, multipliers_of: Integers, lower: Array, upper: Array
    ) -> None:
        """Each leaf among the nodes has no point, or a bound above 0."""
        kind = self.tree.nodes[nodes]
        leaves = np.flatnonzero(kind < 0)
        in_force = self.tree.in_force[leaf_of[nodes[leaves]]]
        low, high = (
            np.maximum(lower[:, leaves], self.lower[:, in_force]),
            np.minimum(upper[:, leaves], self.upper[:, in_force]),
        )
        left = np.flatnonzero(~(low > high).any(0))
        if (kind[leaves[left]] == EMPTY).any():
            raise Rejected("a leaf that is said to be empty is not")
        if len(left):
            which = multipliers_of[nodes[leaves[left]]].tolist()
            value = self._below(self.tree.multipliers, which, low[:, left], high[:, left]).bound
            if not ((value > 0) & np.isfinite(value)).all():
                raise Rejected(f"a leaf is not proven: its bound is {value.min():.6g}")


def _pay(of: Collapsed, tree: Tree) -> None:
    """For all of a tree but its forms and clips, which pay when they are made."""
    multipliers, rounds = (tree.multipliers, tree.clips.multipliers), tree.rounds
    bounds = len(rounds.taps) + sum(len(m.alpha) for m in multipliers)
    each = 2 * STEP + 40 * of.count
    pushes = sum(len(m.alpha) * STEP + len(m.beta) * 50 for m in multipliers)
    of.budget.work(of.work(bounds) + len(rounds.sizes) * of.work(0) + len(tree.nodes) * each + pushes)
    of.budget.hold(32 * (len(rounds.sizes) + 1) * of.count + 200 * len(tree.nodes))


def _starts(multipliers: Multipliers, exist: bool) -> list[int]:
    """Where the β of each domain start, and where the last ones end."""
    sizes = multipliers.sizes
    fits = len(sizes) == len(multipliers.alpha) and not (sizes < 0).any()
    if not fits or not sizes.sum() == len(multipliers.taps) == len(multipliers.beta) or not exist:
        raise Rejected("multipliers do not fit the tree")
    return [0, *np.cumsum(sizes).tolist()]
