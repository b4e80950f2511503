"""Bounds of every value over the region: intervals, and CROWN where they leave the sign of a ReLU's input open.

The rows of a ReLU's input pass back to the image (CROWN, Zhang et al. 2018). Every coefficient on the way is a float64
number of our choice; what the real function has beyond it is bounded and taken from the constant:

- Through a linear node, aᵀ(Wh + b) = âᵀh + aᵀb + eᵀh with â = fl(aᵀW) and |e| ≤ γ·|a|ᵀ|W|. So at most
  γ·|a|ᵀ(|W|·H) is lost, where H ≥ |h| from intervals: `lost` holds γ·|W|·H for each output, and more for the bias.
- Through a site, a·y(z) ≥ fl(a·slope)·z + a·intercept with the line below y where a > 0, above it where a < 0. Slope,
  intercept and product are rounded: `lost` has what that can cost.
- At the image, the minimum over the box is taken, minus the rounding of its sum.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lingraft.checker.budget import STEP, Budget, Passage, forward_bytes, multiplications
from lingraft.checker.network import Network
from lingraft.checker.nodes import Input, Node, Site
from lingraft.checker.rounding import LARGEST, UNDERFLOW, UNIT, Array, around, down, gamma, middle
from lingraft.checker.rows import Integers, Rows, Tally, select
from lingraft.errors import LingraftError

#: Coefficients that pass back at once: rows and what becomes of them stay in a core's cache. Products with kernels.
CHUNK, SPREAD = 100_000, 4_000_000

#: Bytes that are kept for each value: bounds, those of a site's input, lines, what a coefficient loses, its tap.
KEPT = 100

#: (node of a site, rows over its outputs) → rows over its inputs, and constants (S, R).
AtSite = Callable[[int, Rows], tuple[Rows, Array]]


@dataclass
class Lines:
    """slope·z + intercept below and above a site's outputs, each of the site's shape."""

    below: tuple[Array, Array]
    above: tuple[Array, Array]


class Bounds:
    """Bounds of all values of a network over the box from `low` to `high` (inner shape of the input)."""

    def __init__(self, network: Network, low: Array, high: Array, budget: Budget | None = None):
        self.nodes = network.nodes
        self.budget = Budget() if budget is None else budget
        self.budget.hold(KEPT * sum(node.size for node in self.nodes))
        self.lower: list[Array] = []
        self.upper: list[Array] = []
        #: what a coefficient of size 1 on an output of each node loses on the way back, one number a channel
        self.lost: list[Array] = []
        #: sharper bounds of the inputs of each site, and the lines that they allow
        self.sites: dict[int, tuple[Array, Array]] = {}
        self.lines: dict[int, Lines] = {}
        self.center, self.radius = middle(low, high)
        for i, node in enumerate(self.nodes):
            self.budget.work(4 * multiplications(node) + 10 * STEP)
            self.budget.brief(3 * forward_bytes(node))
            if isinstance(node, Input):
                self._keep(low, high, np.zeros(1))
            elif isinstance(node, Site):
                self._site(i, node)
            else:
                self._linear(node)

    def _keep(self, lower: Array, upper: Array, lost: Array) -> None:
        if not (np.isfinite(lower).all() and np.isfinite(upper).all() and max(-lower.min(), upper.max()) < LARGEST):
            raise LingraftError("values overflow or are too large to be bounded.")
        self.lower.append(lower)
        self.upper.append(upper)
        self.lost.append(_by_channel(np.broadcast_to(lost, lower.shape)))

    def size(self, i: int) -> Array:
        """The largest absolute value of each value of a node."""
        return np.maximum(-self.lower[i], self.upper[i])

    def _linear(self, node: Node) -> None:
        """Intervals through a linear node."""
        self._keep(*through_linear(node, [(self.lower[j], self.upper[j]) for j in node.inputs]))

    def _site(self, i: int, site: Site) -> None:
        """Sharper bounds of the inputs, then lines, then bounds of the outputs."""
        before = site.inputs[0]
        lower, upper = self.lower[before].copy(), self.upper[before].copy()
        open_ = ((site.bend != 0) & (lower < 0) & (upper > 0)).reshape(-1).nonzero()[0]
        if len(open_):
            low, high = self.crown(before, open_)
            flat_lower, flat_upper = lower.reshape(-1), upper.reshape(-1)
            flat_lower[open_] = np.fmax(flat_lower[open_], low)
            flat_upper[open_] = np.fmin(flat_upper[open_], high)
        if not (lower <= upper).all():
            raise LingraftError("bounds overflow or contradict each other.")
        self.sites[i], self.lines[i] = (lower, upper), lines(site, lower, upper)
        self._keep(*through_site(site, self.lines[i], lower, upper, self.lower[before], self.upper[before]))

    # --- passing back --------------------------------------------------------------------------------------------

    def pass_back(
        self, pending: dict[int, Rows], tally: Tally, at_site: AtSite, passage: Passage | None = None
    ) -> Rows | None:
        """Rows over some nodes become rows over the image (None: nothing depends on it); constants go to the tally."""
        for i in range(max(pending), -1, -1):
            rows = pending.pop(i, None)
            if rows is None:
                continue
            node = self.nodes[i]
            if passage is not None:
                passage.see(node, rows)
            if isinstance(node, Input):
                return rows
            if isinstance(node, Site):
                part, constant = at_site(i, rows)
                parts = [part]
            else:
                parts, constant = node.back(rows)
            tally.add(constant, rows.dot(self.lost[i]))
            self.spread(pending, node, parts, tally)
        return None

    def spread(self, pending: dict[int, Rows], node: Node, parts: list[Rows], tally: Tally) -> None:
        """Add rows over the inputs of a node to those that wait there."""
        for j, part in zip(node.inputs, parts, strict=True):
            if j in pending:
                part = pending[j].plus(part, self.nodes[j].shape)
                tally.add(np.zeros(1), part.dot(gamma(1) * _by_channel(self.size(j))))
            pending[j] = part

    def start(self, i: int, indices: Integers) -> tuple[dict[int, Rows], Tally]:
        """Rows of single values of node `i`, already one node back: exact but for inexact constants."""
        node, pending = self.nodes[i], dict[int, Rows]()
        tally = Tally(np.zeros((1, len(indices))), np.zeros((1, len(indices))))
        if isinstance(node, Input | Site):
            return {i: select(indices, node.shape)}, tally
        parts, constant = node.neurons(indices)
        tally.add(constant, self.lost[i][indices % len(self.lost[i])])
        self.spread(pending, node, parts, tally)
        return pending, tally

    def chunks(self, i: int, indices: Integers, sides: int) -> list[Integers]:
        """Cut the values of a node into groups whose rows stay small on the way back, which is paid for here."""
        # the first and the last value: windows that lie differently in two branches become whole maps where these meet
        return self._cut(indices, sides, *self.start(i, np.array([0, self.nodes[i].size - 1])))

    def _cut(self, indices: Integers, sides: int, pending: dict[int, Rows], tally: Tally) -> list[Integers]:
        """Cut numbers of rows that are like those given."""
        passage = Passage()
        self.budget.work(5 * STEP * max(pending))
        self.pass_back(pending, tally, lambda _, rows: (rows, np.zeros(rows.a.shape[:2])), passage)
        count = max(1, min(CHUNK // passage.widest, SPREAD // passage.spread))
        pieces = -(-len(indices) // count)
        self.budget.work(sides * len(indices) * passage.work + pieces * passage.steps * STEP)
        return np.array_split(indices, pieces)

    def relaxed(self, i: int, rows: Rows) -> tuple[Rows, Array]:
        """Replace an activation by the lines that make the rows smaller."""
        lines = self.lines[i]
        positive = np.maximum(rows.a, 0)
        negative = rows.a - positive
        (below, low), (above, high) = lines.below, lines.above
        a = positive * rows.view(below)
        a += negative * rows.view(above)
        constant = np.zeros(rows.a.shape[:2])
        for sign, intercept in ((positive, low), (negative, high)):
            if intercept.any():
                sign *= rows.view(intercept)
                constant += sign.reshape(*constant.shape, -1).sum(2)
        return Rows(a, rows.origin), constant

    def least(self, rows: Rows | None, tally: Tally) -> Array:
        """Lower bounds (S, R) of rows over the image."""
        if rows is not None:
            center, radius = rows.view(self.center), rows.view(self.radius)
            low = (rows.a * center - np.abs(rows.a) * radius).reshape(*rows.a.shape[:2], -1).sum(2)
            largest = _by_channel(np.abs(self.center) + self.radius)
            tally.add(low, gamma(rows.a[0, 0].size + 2) * rows.dot(largest))
        return down(tally.constant - (tally.slack * 1.001 + UNDERFLOW))

    def crown(self, i: int, indices: Integers) -> tuple[Array, Array]:
        """Lower and upper bounds of some values of node `i`."""
        found = []
        for some in self.chunks(i, indices, 2):
            pending, tally = self.start(i, some)
            both = {j: Rows(np.concatenate([rows.a, -rows.a]), rows.origin) for j, rows in pending.items()}
            tally = Tally(np.concatenate([tally.constant, -tally.constant]), np.concatenate([tally.slack] * 2))
            found.append(self.least(self.pass_back(both, tally, self.relaxed), tally))
        low, minus_high = np.concatenate(found, axis=1)
        return low, -minus_high

    def margins(self, spec: Array, offset: Array) -> Array:
        """Lower bounds (L,) of spec·outputs + offset: intervals or CROWN, whichever is better."""
        last = len(self.nodes) - 1
        crown = [self.least(self.pass_back(*rows, self.relaxed), rows[1])[0] for rows in self.margin_rows(spec, offset)]
        interval = np.maximum(spec, 0) @ self.lower[last] + np.minimum(spec, 0) @ self.upper[last] + offset
        error = gamma(2 * self.nodes[last].size + 2) * (np.abs(spec) @ self.size(last) + np.abs(offset)) + UNDERFLOW
        return np.maximum(np.concatenate(crown), down(interval - error))

    def margin_rows(self, spec: Array, offset: Array) -> Iterator[tuple[dict[int, Rows], Tally]]:
        """Rows of spec·outputs + offset, some at a time."""
        last = len(self.nodes) - 1
        one = {last: Rows(spec[None, :1])}, Tally(offset[None, :1], np.zeros((1, 1)))
        for some in self._cut(np.arange(len(offset)), 1, *one):
            yield {last: Rows(spec[None, some])}, Tally(offset[None, some], np.zeros((1, len(some))))


def _by_channel(values: Array) -> Array:
    """The largest number of each channel of a map, or the vector itself."""
    result: Array = values.reshape(-1, values.shape[-1]).max(0)
    return result if values.ndim == 3 else values


def through_linear(node: Node, inputs: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """Intervals through a linear node, as center and radius; and what a coefficient of size 1 loses there."""
    pairs = [middle(*ends) for ends in inputs]
    sizes = [np.abs(center) + radius for center, radius in pairs]
    terms, offset = node.magnitude(*sizes), np.abs(node.offset())
    doubt = node.doubt(sizes[0])
    radius = node.magnitude(*[radius for _, radius in pairs])
    error = gamma(node.terms) * (terms + offset) + doubt + UNDERFLOW * node.live()
    value = node.forward(*[center for center, _ in pairs])
    total = (radius + error) * (1 + 8 * UNIT)
    return *around(value, total), gamma(node.back_terms) * terms + gamma(node.size) * offset + doubt


def through_site(
    site: Site, lines: Lines, lower: Array, upper: Array, low: Array, high: Array
) -> tuple[Array, Array, Array]:
    """Bounds of the outputs where inputs are from `lower` to `upper`, and by intervals from `low` to `high`.

    And what a coefficient of size 1 loses there.
    """
    bends = site.bend * np.maximum(lower, 0), site.bend * np.maximum(upper, 0)
    slants = site.slope * low, site.slope * high
    least, most = (side(*bends) + side(*slants) + site.shift for side in (np.minimum, np.maximum))
    z, slopes, shift = np.maximum(-low, high), np.abs(site.bend) + np.abs(site.slope), np.abs(site.shift)
    exact = ((slopes == 0) | (z == 0)) & (shift == 0)  # it is 0
    error = np.where(exact, 0.0, gamma(8) * (slopes * z + shift) + UNDERFLOW)
    intercepts = np.maximum(np.abs(lines.below[1]), np.abs(lines.above[1]))
    return around(least, error)[0], around(most, error)[1], error + gamma(site.size) * intercepts


def lines(site: Site, lower: Array, upper: Array) -> Lines:
    """Lines below and above bend·relu(z) + slope·z + shift on [lower, upper], up to a few roundings.

    Of relu, where it is open: above, the chord s·z + t; below, the identity or 0, whichever leaves the smaller area.
    """
    on, off = lower >= 0, upper <= 0
    open_ = ~(on | off)
    width = np.where(open_, upper - lower, 1.0)
    s = np.where(on, 1.0, np.where(off, 0.0, upper / width))
    t = np.where(open_, np.maximum(-lower * s, (1 - s) * upper), 0.0)
    a = np.where(on, 1.0, np.where(off, 0.0, (upper > -lower).astype(np.float64)))
    chord = site.bend * s + site.slope, site.bend * t + site.shift
    plain = site.bend * a + site.slope, site.shift
    convex = site.bend >= 0
    below = np.where(convex, plain[0], chord[0]), np.where(convex, plain[1], chord[1])
    above = np.where(convex, chord[0], plain[0]), np.where(convex, chord[1], plain[1])
    return Lines(below, above)
