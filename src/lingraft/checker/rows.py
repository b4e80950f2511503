"""Rows: linear functions of the values of one node, many at a time, with a constant and what rounding took from it.

Maps are kept channels last: shape (height, width, channels). The rows over a map are an array (S, R, h, w, C): S sides
(1, or 2 where rows and their negatives go back together) of R rows. `origin` (R, 2) is where the top left corner of
each row's window lies in the map; without an origin the window is the whole map. A window may reach over the edge; the
coefficients out there are 0. The rows over a vector are (S, R, features).
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lingraft.checker.rounding import UNIT, Array

Shape = tuple[int, ...]
Integers = NDArray[np.int64]


@dataclass
class Rows:
    """Coefficients (S, R, h, w, C) of windows or maps, or (S, R, features)."""

    a: Array
    origin: Integers | None = None

    def whole(self, shape: Shape) -> "Rows":
        """The same rows over the whole map."""
        if self.origin is None:
            return self
        sides, count, h, w, channels = self.a.shape
        (top, left), (bottom, right) = self._reach(shape)
        full = np.zeros((sides, count, top + shape[0] + bottom, left + shape[1] + right, channels))
        corner = self.origin + [top, left]
        windows = sliding_window_view(full, (h, w), axis=(2, 3), writeable=True)
        windows[:, np.arange(count), corner[:, 0], corner[:, 1]] = self.a.transpose(0, 1, 4, 2, 3)
        return Rows(full[:, :, top : top + shape[0], left : left + shape[1]])

    def _reach(self, shape: Shape) -> tuple[tuple[int, int], tuple[int, int]]:
        """How far the windows reach over the edges: above and left, below and right."""
        assert self.origin is not None
        h, w = self.a.shape[2:4]
        low, high = self.origin.min(0), self.origin.max(0) + [h - shape[0], w - shape[1]]
        return (max(0, -int(low[0])), max(0, -int(low[1]))), (max(0, int(high[0])), max(0, int(high[1])))

    def view(self, values: np.ndarray) -> np.ndarray:
        """What each row's window (R, h, w, C) sees of a map, 0 over the edge; whole rows see all of it."""
        if self.origin is None:
            return values
        (top, left), (bottom, right) = self._reach(values.shape)
        padded = np.pad(values, ((top, bottom), (left, right), (0, 0)))
        windows = sliding_window_view(padded, self.a.shape[2:4], axis=(0, 1))
        seen: np.ndarray = windows.transpose(0, 1, 3, 4, 2)[self.origin[:, 0] + top, self.origin[:, 1] + left]
        return seen

    def clear_outside(self, shape: Shape) -> None:
        """Make the coefficients over the edge 0, in place; they belong to the padding of a convolution."""
        assert self.origin is not None
        h, w = self.a.shape[2:4]
        y, x = self.origin[:, :1] + np.arange(h), self.origin[:, 1:] + np.arange(w)
        inside = ((y >= 0) & (y < shape[0]))[:, :, None] & ((x >= 0) & (x < shape[1]))[:, None, :]
        if not inside.all():
            self.a *= inside[..., None]

    def plus(self, other: "Rows", shape: Shape) -> "Rows":
        """The sum of two sets of rows over the same node; each coefficient is rounded once."""
        if self.origin is not None and other.origin is not None:
            shift = other.origin - self.origin
            if (shift == shift[0]).all():
                return self._sum_of_windows(other, shift[0])
        return Rows(self.whole(shape).a + other.whole(shape).a)

    def _sum_of_windows(self, other: "Rows", shift: Integers) -> "Rows":
        """In the smallest window that holds both, whose corners differ by the same shift in every row."""
        assert self.origin is not None
        mine, its = np.maximum(-shift, 0), np.maximum(shift, 0)
        height, width = np.maximum(mine + self.a.shape[2:4], its + other.a.shape[2:4])
        total = np.zeros((*self.a.shape[:2], height, width, self.a.shape[4]))
        for part, (y, x) in ((self.a, mine), (other.a, its)):
            total[:, :, y : y + part.shape[2], x : x + part.shape[3]] += part
        return Rows(total, self.origin - mine)

    def dot(self, each: Array) -> Array:
        """Σ|a|·each (S, R), `each` being one number a channel or feature: what coefficients of these sizes cost."""
        sizes = np.abs(self.a).reshape(-1, len(each)) @ each
        total: Array = sizes.reshape(*self.a.shape[:2], -1).sum(2)
        return total


@dataclass
class Tally:
    """The constants (S, R) of rows: the real ones are within `slack` of `constant`."""

    constant: Array
    slack: Array

    def add(self, constant: Array, slack: Array | float) -> None:
        """Add to both; the rounding of this sum goes to the slack, too."""
        self.constant = self.constant + constant
        self.slack = self.slack + slack + 2 * UNIT * np.abs(self.constant)


def select(indices: Integers, shape: Shape) -> Rows:
    """One row for each flat index of a node: the value itself."""
    rows = np.arange(len(indices))
    if len(shape) == 1:
        one = np.zeros((1, len(indices), shape[0]))
        one[0, rows, indices] = 1
        return Rows(one)
    position, channel = indices // shape[2], indices % shape[2]
    window = np.zeros((1, len(indices), 1, 1, shape[2]))
    window[0, rows, 0, 0, channel] = 1
    return Rows(window, np.stack([position // shape[1], position % shape[1]], axis=1))
