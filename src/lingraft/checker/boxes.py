"""The proof of margins by cuts of the region: do the boxes cover it, and does each of them prove the margins there?

A cut at a point leaves x ≤ point and x ≥ point, which together are everything. In every box that is done or clipped, a
margin f is bounded from below: f(x) ≥ b + p·(x − corner), with the corner of the box where p·x is lowest. Every term of
that sum is at least 0, so where f(x) ≤ 0, each |p_d|·|x_d − corner_d| is at most −b. What is left of the box is the
smallest one around all such points, of all margins: nothing, if each has some b > 0. A margin of which one constraint
of several must hold is bounded by each of them, and by any sum of them with shares ≥ 0, at least one of which is not 0:
where none of them is above 0, the sum is not either.
"""

from dataclasses import dataclass

import numpy as np

from lingraft.checker.bounds import KEPT
from lingraft.checker.box_bounds import BoxBounds, least, price_of_a_box
from lingraft.checker.budget import STEP, Budget
from lingraft.checker.format import CLIPPED, BoxTree, Rejected
from lingraft.checker.network import Network
from lingraft.checker.rounding import UNDERFLOW, Array, down, gamma, up
from lingraft.checker.rows import Integers

#: A node of the tree may ask for the bounds of so many boxes, and so may a byte of the certificate.
BOXES_PER_NODE, BOXES_PER_BYTE = 4, 1

#: A box that is not proven at once is cut in half, and so are its halves, so many times: where a line below a ReLU is
#: chosen the other way, by a hair, bounds may be a little worse than those of whoever made the tree.
HALVINGS = 6

#: Boxes that are bounded at once, and bytes that their values may take.
BATCH, BYTES = 1024, 1 << 26


def check_boxes(
    network: Network,
    region: tuple[Array, Array],
    constraints: tuple[Array, Array],
    inputs: Integers,
    tree: BoxTree,
    size: int,
    budget: Budget,
) -> None:
    """Return if the tree proves its margins, each of which is that one of K `constraints`, (L, K, outputs) and (L, K),

    is positive everywhere in the region. `inputs` are those that each number in the certificate means; the certificate
    has `size` bytes.
    """
    margins, several, outputs = constraints[0].shape
    each = KEPT * sum(node.size for node in network.nodes) + 32 * margins * (several + 1) * outputs
    width, held = max(1, min(BATCH, BYTES // each)), budget.held
    budget.allow(min(BOXES_PER_NODE * len(tree.nodes), BOXES_PER_BYTE * size) * price_of_a_box(network))
    budget.hold(each * width + (200 + 16 * network.nodes[0].size) * len(tree.nodes))
    budget.work(len(tree.nodes) * STEP / 4)
    try:
        _Boxes(network, constraints, inputs, tree, width, budget).check(*region)
    except Rejected as error:
        raise Rejected(f"boxes: {error}") from error
    budget.held = held


@dataclass
class _Box:
    """A node of the tree, by its place, from `low` to `high` (n,), and how often it may still be cut in half."""

    place: int
    low: Array
    high: Array
    halvings: int = HALVINGS

    def cut(self, at: int, point: float) -> "tuple[_Box, _Box]":
        """What is up to a point of one input, and what is from there on."""
        under, over = self.high.copy(), self.low.copy()
        under[at], over[at] = min(under[at], point), max(over[at], point)
        left = self.halvings - 1
        return _Box(self.place, self.low, under, left), _Box(self.place, over, self.high, left)


class _Boxes:
    def __init__(
        self,
        network: Network,
        constraints: tuple[Array, Array],
        inputs: Integers,
        tree: BoxTree,
        width: int,
        budget: Budget,
    ):
        self.network, self.tree, self.width, self.budget = network, tree, width, budget
        self.spec, self.offset = constraints
        nodes = tree.nodes
        if not len(tree.margins):
            raise Rejected("a tree for no margin")
        if len(nodes) and not (nodes.min() >= CLIPPED and nodes.max() < len(inputs)):
            raise Rejected("a cut of an input that does not exist")
        self.number = np.where(nodes >= 0, np.cumsum(nodes >= 0), np.cumsum(nodes < 0)) - 1
        margins, several = self.offset.shape
        several = several if several > 1 else 0
        bounded = int((nodes < 0).sum())
        shares_fit = tree.shares.shape == (bounded, margins * several) and (tree.shares >= 0).all()
        if len(tree.points) != len(nodes) - bounded or not shares_fit:
            raise Rejected("points or shares do not fit the tree")
        self.inputs, self.shares = inputs, tree.shares.reshape(bounded, margins, several)
        self.after = self._after()

    def _after(self) -> list[int]:
        """The place behind the subtree of every node.

        Read from its end, a list in preorder is a tree if every cut finds two subtrees behind it, every clipped box
        one, and one is left in the end: so no half can be missing.
        """
        after, roots = [0] * len(self.tree.nodes), list[int]()
        for place in range(len(after) - 1, -1, -1):
            kind, end = self.tree.nodes[place], place + 1
            for _ in range(2 if kind >= 0 else 1 if kind == CLIPPED else 0):
                if not roots:
                    raise Rejected("the tree is not complete, a box is missing")
                end = after[roots.pop()]
            after[place] = end
            roots.append(place)
        if len(roots) != 1:
            raise Rejected("the list of nodes is not one tree")
        return after

    def check(self, low: Array, high: Array) -> None:
        """Go through all boxes, many at a time; of one that has no point nothing has to be shown."""
        shape, width = low.shape, (high - low).reshape(-1)
        waiting = [_Box(0, low.reshape(-1), high.reshape(-1))]
        while waiting:
            some: list[_Box] = []
            while waiting and len(some) < self.width:
                box = waiting.pop()
                if (box.low > box.high).any():
                    continue
                kind = self.tree.nodes[box.place]
                if kind >= 0:
                    under, over = box.cut(self.inputs[kind], self.tree.points[self.number[box.place]])
                    first = box.place + 1
                    waiting += [_Box(first, under.low, under.high), _Box(self.after[first], over.low, over.high)]
                else:
                    some.append(box)
            for box, low, high in zip(some, *self._left(some, shape), strict=True):
                if self.tree.nodes[box.place] == CLIPPED:
                    waiting.append(_Box(box.place + 1, low, high))
                elif not (low > high).any():
                    if not box.halvings:
                        raise Rejected("a box is not proven")
                    at = int(np.argmax((box.high - box.low) / np.where(width > 0, width, np.inf)))
                    waiting += box.cut(at, box.low[at] + (box.high[at] - box.low[at]) / 2)

    def _left(self, boxes: list["_Box"], shape: tuple[int, ...]) -> tuple[Array, Array]:
        """The smallest boxes (B, n), within those given, that hold all points where a margin is not above 0."""
        if not boxes:
            return np.zeros((0, 0)), np.zeros((0, 0))
        low, high = np.stack([box.low for box in boxes]), np.stack([box.high for box in boxes])
        bounds = BoxBounds(self.network, low.reshape(-1, *shape), high.reshape(-1, *shape), self.budget)
        spec, offset = self.spec.reshape(-1, self.spec.shape[2]), self.offset.reshape(-1)
        value, p = bounds.functions(spec, offset)
        value, p = value.reshape(-1, *self.offset.shape), p.reshape(-1, *self.offset.shape, low.shape[1])
        radius = bounds.radius.reshape(len(low), 1, 1, -1)
        proven = bounds.intervals(spec, offset).reshape(value.shape).max(2, keepdims=True) > 0
        if self.shares.shape[2]:
            value, p = _with_sum(value, p, self.shares[self.number[[box.place for box in boxes]]], radius)
        bound = least(value, p, radius)[..., None]  # (B, L, K, 1)
        reach = _reach(bound, p)
        highest = np.where(p > 0, up(low[:, None, None] + reach), np.inf)
        lowest = np.where(p < 0, -up(reach - high[:, None, None]), -np.inf)
        highest, lowest = np.where(bound > 0, -np.inf, highest), np.where(bound > 0, np.inf, lowest)
        # a point must be within what every function of a margin leaves, for one of the margins
        highest, lowest = np.fmin.reduce(highest, axis=2), np.fmax.reduce(lowest, axis=2)
        highest = np.where(proven, -np.inf, highest).max(1)
        lowest = np.where(proven, np.inf, lowest).min(1)
        return np.maximum(low, lowest), np.minimum(high, highest)


def _reach(bound: Array, p: Array) -> Array:
    """How far from the corner a point can be where bound + p·(x − corner) ≤ 0, rounded up; NaN is no limit."""
    return up(np.maximum(-bound, 0.0) / np.abs(p))


def _with_sum(value: Array, p: Array, shares: Array, radius: Array) -> tuple[Array, Array]:
    """Functions value (B, L, K) + p·d, p (B, L, K, n), |d| ≤ radius; and of each margin their sum, with shares."""
    parts = shares[..., None] * p
    terms = (shares * np.abs(value)).sum(2) + (np.abs(parts) * radius).sum((2, 3))
    total = down((shares * value).sum(2) - (gamma(value.shape[2] * p.shape[3]) * terms + UNDERFLOW))
    return np.append(value, total[:, :, None], axis=2), np.append(p, parts.sum(2)[:, :, None], axis=2)
