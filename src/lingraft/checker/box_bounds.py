"""Bounds over many boxes at once: what `bounds.py` does for one region, with the boxes in front of every array.

Rows of all boxes pass the linear nodes together, each with the lines of its own box. What rounding takes from a row is
counted by the largest number of a node, not value by value. Rows over maps are whole maps.
"""

import numpy as np

from lingraft.checker.bounds import CHUNK, KEPT, Lines, lines, through_linear, through_site
from lingraft.checker.budget import STEP, Budget, forward_bytes, multiplications
from lingraft.checker.network import Network
from lingraft.checker.nodes import Input, Node, Site
from lingraft.checker.rounding import LARGEST, UNDERFLOW, Array, down, gamma, middle
from lingraft.checker.rows import Integers, Rows, Tally, select
from lingraft.errors import LingraftError


class BoxBounds:
    """Bounds of all values of a network over B boxes from `low` to `high`, each (B, *inner shape of the input)."""

    def __init__(self, network: Network, low: Array, high: Array, budget: Budget):
        self.nodes, self.budget = network.nodes, budget
        self.low, self.high = low, high
        self.center, self.radius = middle(low, high)
        self.lower: list[Array] = []
        self.upper: list[Array] = []
        #: of each node and box: the largest value, and what a coefficient of size 1 loses at most on the way back
        self.size: list[Array] = []
        self.lost: list[Array] = []
        self.lines: dict[int, Lines] = {}
        self.price = prices(network)
        for i, node in enumerate(self.nodes):
            budget.work(len(low) * 4 * multiplications(node) + 10 * STEP)
            budget.brief(3 * len(low) * forward_bytes(node))
            if isinstance(node, Input):
                self._keep(low, high, np.zeros(1))
            elif isinstance(node, Site):
                self._site(i, node)
            else:
                self._keep(*through_linear(node, [(self.lower[j], self.upper[j]) for j in node.inputs]))

    def _keep(self, lower: Array, upper: Array, lost: Array) -> None:
        size = np.maximum(-lower, upper).reshape(len(lower), -1).max(1)
        if not (np.isfinite(lower).all() and np.isfinite(upper).all() and size.max() < LARGEST):
            raise LingraftError("values overflow or are too large to be bounded.")
        self.lower.append(lower)
        self.upper.append(upper)
        self.size.append(size)
        self.lost.append(np.broadcast_to(lost, lower.shape).reshape(len(lower), -1).max(1))

    def _site(self, i: int, site: Site) -> None:
        """Sharper bounds of the inputs that intervals leave open, then lines, then bounds of the outputs."""
        before = site.inputs[0]
        lower, upper = self.lower[before].copy(), self.upper[before].copy()
        flat_lower, flat_upper = (t.reshape(len(t), -1) for t in (lower, upper))
        box, neuron = ((site.bend.reshape(-1) != 0) & (flat_lower < 0) & (flat_upper > 0)).nonzero()
        for some in self._cut(before, len(box), 2):
            place = box[some], neuron[some]
            value, p = self._below(*self._neurons(before, *place), place[0])
            low, minus_high = least(value, p, self.radius.reshape(len(lower), -1)[place[0]])
            flat_lower[place] = np.fmax(flat_lower[place], low)
            flat_upper[place] = np.fmin(flat_upper[place], -minus_high)
        if not (lower <= upper).all():
            raise LingraftError("bounds overflow or contradict each other.")
        self.lines[i] = lines(site, lower, upper)
        self._keep(*through_site(site, self.lines[i], lower, upper, self.lower[before], self.upper[before]))

    def functions(self, spec: Array, offset: Array) -> tuple[Array, Array]:
        """Linear functions below spec·outputs + offset (L,): values (B, L) at the center, rows (B, L, n)."""
        last, boxes, count = len(self.nodes) - 1, len(self.low), len(offset)
        box, which = np.divmod(np.arange(boxes * count), count)
        found = []
        for some in self._cut(last, len(box), 1):
            tally = Tally(offset[None, which[some]], np.zeros((1, some.stop - some.start)))
            found.append(self._below({last: Rows(spec[None, which[some]])}, tally, box[some]))
        values, rows = (np.concatenate([pair[i][0] for pair in found]) for i in (0, 1))
        return values.reshape(boxes, count), rows.reshape(boxes, count, -1)

    def intervals(self, spec: Array, offset: Array) -> Array:
        """Lower bounds (B, L) of the same by the intervals of the outputs."""
        low = self.lower[-1] @ np.maximum(spec, 0).T + self.upper[-1] @ np.minimum(spec, 0).T + offset
        terms = self.size[-1][:, None] * np.abs(spec).sum(1) + np.abs(offset)
        return certain(down(low - (gamma(2 * spec.shape[1] + 2) * terms + UNDERFLOW)))

    def _below(self, pending: dict[int, Rows], tally: Tally, box: Integers) -> tuple[Array, Array]:
        """What becomes of rows over the input, each with its box (R,): values (S, R) at the center, rows (S, R, n).

        Rounding is paid for where x is in the box.
        """
        sides, count = tally.constant.shape
        p = np.zeros((sides, count, self.nodes[0].size))
        for i in range(max(pending), -1, -1):
            rows, node = pending.pop(i, None), self.nodes[i]
            if rows is None:
                continue
            if isinstance(node, Input):
                p = rows.a.reshape(p.shape)
                break
            if isinstance(node, Site):
                part, constant = self._relaxed(i, rows, box)
                parts = [part]
            else:
                parts, constant = node.back(rows)
            tally.add(constant, _sizes(rows) * self.lost[i][box])
            self._spread(pending, node, parts, tally, box)
        center, radius = (t.reshape(len(t), -1)[box] for t in (self.center, self.radius))
        largest = (np.abs(p) * (np.abs(center) + radius)).sum(2)
        tally.add((p * center).sum(2), gamma(p.shape[2] + 2) * largest)
        return down(tally.constant - (tally.slack * 1.001 + UNDERFLOW)), p

    def _spread(self, pending: dict[int, Rows], node: Node, parts: list[Rows], tally: Tally, box: Integers) -> None:
        """Add rows over the inputs of a node to those that wait there."""
        for j, part in zip(node.inputs, parts, strict=True):
            part = part.whole(self.nodes[j].shape)
            if j in pending:
                part = Rows(pending[j].a + part.a)
                tally.add(np.zeros(1), gamma(1) * _sizes(part) * self.size[j][box])
            pending[j] = part

    def _neurons(self, i: int, box: Integers, indices: Integers) -> tuple[dict[int, Rows], Tally]:
        """Rows of single values of node `i` and of their negatives, one node back where that is exact."""
        node, pending = self.nodes[i], dict[int, Rows]()
        tally = Tally(np.zeros((2, len(indices))), np.zeros((2, len(indices))))
        if isinstance(node, Input | Site):
            one = select(indices, node.shape).whole(node.shape).a
            return {i: Rows(np.concatenate([one, -one]))}, tally
        parts, constant = node.neurons(indices)
        tally.add(np.concatenate([constant, -constant]), self.lost[i][box])
        both = [Rows(np.concatenate([part.a, -part.a]), part.origin) for part in parts]
        self._spread(pending, node, both, tally, box)
        return pending, tally

    def _relaxed(self, i: int, rows: Rows, box: Integers) -> tuple[Rows, Array]:
        """Replace an activation by the lines of each row's box that make the row smaller."""
        positive = np.maximum(rows.a, 0)
        negative = rows.a - positive
        (below, low), (above, high) = self.lines[i].below, self.lines[i].above
        a = positive * below[box]
        a += negative * above[box]
        constant = np.zeros(rows.a.shape[:2])
        for sign, intercept in ((positive, low), (negative, high)):
            if intercept.any():
                sign *= intercept[box]
                constant += sign.reshape(*constant.shape, -1).sum(2)
        return Rows(a), constant

    def _cut(self, start: int, count: int, sides: int) -> list[slice]:
        """Cut so many rows over a node into parts that stay small on the way back, which is paid for here."""
        widest = max(node.size for node in self.nodes[: start + 1])
        step = max(1, CHUNK // (sides * widest))
        pieces = [slice(first, min(first + step, count)) for first in range(0, count, step)]
        self.budget.brief(8 * 8 * step * sides * widest)
        self.budget.work(sides * count * self.price[start] + len(pieces) * 10 * STEP * (start + 1))
        return pieces


def prices(network: Network) -> list[float]:
    """What a row over each node costs on its way back to the input."""
    found, total = [], 0.0
    for node in network.nodes:
        total += multiplications(node) / 4 + 10 * node.size
        found.append(total)
    return found


def price_of_a_box(network: Network) -> float:
    """What the bounds of one box cost at most."""
    price = prices(network)
    each = [2 * node.size * price[i] for i, node in enumerate(network.nodes) if isinstance(node, Site)]
    return sum(each) + 4 * sum(multiplications(node) for node in network.nodes) + KEPT * len(network.nodes)


def least(value: Array, p: Array, radius: Array) -> Array:
    """The minimum (…) of value (…) + p·d (…, n) where |d| ≤ radius (…, n), rounded down."""
    return certain(down(value - (np.abs(p) * radius).sum(-1) * (1 + gamma(p.shape[-1] + 4))))


def certain(bound: Array) -> Array:
    """Where it is no number: no bound at all."""
    return np.where(np.isfinite(bound), bound, -np.inf)


def _sizes(rows: Rows) -> Array:
    """Σ|a| (S, R)."""
    total: Array = np.abs(rows.a).reshape(*rows.a.shape[:2], -1).sum(2)
    return total
