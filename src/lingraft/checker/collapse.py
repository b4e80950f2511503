"""The network over the region as linear functions of the image and of its open ReLUs, the *taps*.

A neuron that is always on, always off or never bent is linear over the region, so what is left is, for the taps of
each site in turn, with h = relu(z) of the taps before it and x = center + d,

    z = P d + Q h + r        margins = p d + q h + c

up to the rounding of the rows on their way back (see `bounds.py`), which `cost` and `slack` account for.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from lingraft.checker.bounds import Bounds
from lingraft.checker.budget import STEP, Budget
from lingraft.checker.nodes import Site
from lingraft.checker.rounding import UNDERFLOW, Array, gamma
from lingraft.checker.rows import Integers, Rows, Tally

#: Sparse products run at about an eighth of the rate of dense ones.
SPARSE_BELOW = 0.13

#: A dense array, or a sparse matrix of rows.
Matrix = Any


@dataclass
class Block:
    """The taps `first` to `last` of one site: P (taps, pixels) and Q (taps, taps before)."""

    first: int
    last: int
    P: Matrix
    Q: Matrix


@dataclass
class Collapsed:
    """All taps. A real z is within `own` of its row; `cost` is what a multiplier of size 1 on its row loses in all."""

    blocks: list[Block] = field(default_factory=list)
    #: for each node of a site: 1-based number of each tap, 0 for other neurons
    numbers: dict[int, Integers] = field(default_factory=dict)
    lower: Array = field(default_factory=lambda: np.zeros(0))
    upper: Array = field(default_factory=lambda: np.zeros(0))
    r: Array = field(default_factory=lambda: np.zeros(0))
    own: Array = field(default_factory=lambda: np.zeros(0))
    cost: Array = field(default_factory=lambda: np.zeros(0))
    radius: Array = field(default_factory=lambda: np.zeros(0))
    #: multiplications in the blocks before each block, and in all of them
    products: list[float] = field(default_factory=lambda: [0.0])
    #: what is left for work on the taps
    budget: Budget = field(default_factory=Budget)
    p: Array = field(default_factory=lambda: np.zeros((0, 0)))
    q: Array = field(default_factory=lambda: np.zeros((0, 0)))
    c: Array = field(default_factory=lambda: np.zeros(0))
    slack: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def count(self) -> int:
        """Number of taps."""
        return len(self.lower)

    def work(self, columns: int, sites: int | None = None) -> float:
        """What bounds of so many linear functions of taps cost, or of the taps before a site, if made at once."""
        blocks = len(self.blocks) if sites is None else sites
        taps = self.blocks[blocks - 1].last if blocks else 0
        each = self.products[blocks] / 4 + 40 * taps + 10 * (self.count + len(self.radius))
        return columns * each + 5 * STEP * (blocks + 1)


def collapse(bounds: Bounds, named: Mapping[int, Integers], spec: Array, offset: Array) -> Collapsed:
    """Collapse to the open neurons and to those that are `named` (by node of the site), for margins spec·y + offset."""
    found = Collapsed(budget=bounds.budget)
    linear: dict[int, Array] = {}
    found.radius = bounds.radius.reshape(-1)
    for i, site in enumerate(bounds.nodes):
        if not isinstance(site, Site):
            continue
        before = site.inputs[0]
        lower, upper = bounds.sites[i]
        taps = (site.bend != 0) & (lower < 0) & (upper > 0)
        taps.reshape(-1)[named.get(i, np.zeros(0, np.int64))] = True
        index, first = taps.reshape(-1).nonzero()[0], found.count
        P, Q, r, own = _rows(bounds, found, linear, before, index)
        found.numbers[i] = np.zeros(site.shape, np.int64)
        found.numbers[i].reshape(-1)[index] = np.arange(first + 1, first + 1 + len(index))
        linear[i] = site.slope + np.where(~taps & (lower >= 0), site.bend, 0.0)
        found.blocks.append(Block(first, first + len(index), P, Q))
        found.products.append(found.products[-1] + _products(P) + _products(Q))
        found.lower = np.concatenate([found.lower, lower.reshape(-1)[index]])
        found.upper = np.concatenate([found.upper, upper.reshape(-1)[index]])
        found.r, found.own = np.concatenate([found.r, r]), np.concatenate([found.own, own])
    bounds.budget.hold(16 * len(offset) * (len(found.radius) + found.count))
    parts = [_pass(bounds, found, linear, *rows) for rows in bounds.margin_rows(spec, offset)]
    p, q, found.c, found.slack = _finish(bounds, found.count, parts)
    found.p, found.q = _dense(p).T, _dense(q).T
    reach = np.maximum(found.upper, 0)
    rounded = [abs(b.Q) @ reach[: b.first] + abs(b.P) @ found.radius for b in found.blocks]
    lost = gamma(2 * found.count + 8) * (np.concatenate([np.zeros(0), *rounded]) + np.abs(found.r))
    found.cost = found.own + lost
    return found


def _rows(
    bounds: Bounds, found: Collapsed, linear: dict[int, Array], node: int, index: Integers
) -> tuple[Matrix, Matrix, Array, Array]:
    """P, Q, r and `own` of some values of a node."""
    chunks = bounds.chunks(node, index, 2) if len(index) else []
    parts = [_pass(bounds, found, linear, *bounds.start(node, some)) for some in chunks]
    return _finish(bounds, found.count, parts)


def _pass(
    bounds: Bounds, found: Collapsed, linear: dict[int, Array], pending: dict[int, Rows], tally: Tally
) -> tuple[Matrix, Matrix, Tally]:
    """Rows pass back to the image through linear neurons, and to the taps on the way."""
    count = tally.constant.shape[1]
    entries: list[tuple[Integers, Integers, Array]] = []

    def at_site(i: int, rows: Rows) -> tuple[Rows, Array]:
        site, numbers = bounds.nodes[i], found.numbers[i]
        assert isinstance(site, Site)
        if rows.origin is None:
            places = numbers.reshape(-1).nonzero()[0]
            value = rows.a.reshape(count, -1)[:, places] * site.bend.reshape(-1)[places]
            row, column = np.indices(value.shape)
            entries.append((row.reshape(-1), numbers.reshape(-1)[places][column.reshape(-1)] - 1, value.reshape(-1)))
        else:
            seen = rows.view(numbers)
            at = seen.nonzero()
            entries.append((at[0], seen[at] - 1, rows.a[0][at] * rows.view(site.bend)[at]))
        shift = (rows.a * rows.view(site.shift)).reshape(1, count, -1).sum(2)
        return Rows(rows.a * rows.view(linear[i]), rows.origin), shift

    final = bounds.pass_back(pending, tally, at_site)
    row, column, value = (np.concatenate(parts) for parts in zip(*entries, strict=True)) if entries else ([], [], [])
    Q = sparse.csr_matrix((value, (row, column)), shape=(count, found.count))
    P = _pixels(final, count, bounds.center.shape)
    bounds.budget.hold(_bytes(P) + _bytes(Q))
    return P, Q, tally


def _pixels(rows: Rows | None, count: int, shape: tuple[int, ...]) -> Matrix:
    """Rows over the image as a matrix (count, pixels)."""
    if rows is None:
        return sparse.csr_matrix((count, int(np.prod(shape))))
    if rows.origin is None:
        return rows.a.reshape(count, -1)
    places = rows.view(np.arange(1, int(np.prod(shape)) + 1).reshape(shape)).reshape(count, -1)
    used = places > 0
    ends = np.concatenate([[0], used.sum(1).cumsum()])
    return sparse.csr_matrix((rows.a.reshape(count, -1)[used], places[used] - 1, ends), shape=(count, np.prod(shape)))


def _finish(
    bounds: Bounds, taps: int, parts: list[tuple[Matrix, Matrix, Tally]]
) -> tuple[Matrix, Matrix, Array, Array]:
    """Put chunks together, and move the origin of the image to the center of the box."""
    center = bounds.center.reshape(-1)
    if not parts:
        return np.zeros((0, len(center))), np.zeros((0, taps)), np.zeros(0), np.zeros(0)
    P, Q = (_stack(bounds.budget, [part[number] for part in parts]) for number in (0, 1))
    r = np.concatenate([tally.constant[0] for _, _, tally in parts])
    own = np.concatenate([tally.slack[0] for _, _, tally in parts])
    error = gamma(len(center) + 2) * (abs(P) @ np.abs(center) + np.abs(r))
    return P, Q, r + P @ center, 1.001 * own + error + UNDERFLOW


def _stack(budget: Budget, parts: list[Matrix]) -> Matrix:
    """Matrices below each other, sparse where that is cheaper; the parts are then given up."""
    held, dense = sum(map(_bytes, parts)), 8 * sum(math.prod(part.shape) for part in parts)
    if any(isinstance(part, np.ndarray) for part in parts):
        budget.brief(2 * dense)
        whole = np.concatenate([_dense(part) for part in parts])
    else:
        budget.brief(held)
        whole = sparse.vstack(parts, format="csr")
        if whole.nnz >= SPARSE_BELOW * max(1, np.prod(whole.shape)):
            budget.brief(held + dense)
            whole = whole.toarray()
    budget.hold(_bytes(whole) - held)
    return whole


def _bytes(matrix: Matrix) -> int:
    return matrix.nbytes if isinstance(matrix, np.ndarray) else 12 * matrix.nnz


def _products(matrix: Matrix) -> float:
    """Multiplications of a matrix and a vector, those of sparse ones counted by what they take."""
    return float(matrix.size if isinstance(matrix, np.ndarray) else matrix.nnz / SPARSE_BELOW)


def _dense(matrix: Matrix) -> np.ndarray:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
