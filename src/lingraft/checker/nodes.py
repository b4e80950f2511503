"""The operations of a network: what they compute, how large the terms are, and how rows pass back through them.

All that is linear is one of five nodes (Convolution, Dense, Scale, Gather, Sum); a Site is what bends. The constants
are float64 and exact, except where `doubt` says otherwise. `forward` is rounded; it differs from the real result by at
most gamma(terms)·(magnitude(|x|) + |bias|) + doubt(|x|). `back` is the transposed operation on rows, rounded likewise:
each coefficient is a sum of at most `back_terms` products. `forward` and `magnitude` also take many inputs at once,
with their number in front of the shape.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import sparse

from lingraft.checker.rounding import Array
from lingraft.checker.rows import Integers, Rows, Shape, select


@dataclass
class Node:
    """`inputs` are numbers of nodes; `shape` is (height, width, channels) or (features,)."""

    inputs: list[int]
    shape: Shape

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    terms = back_terms = 1

    def forward(self, *x: Array) -> Array:
        """The values, from those of the inputs."""
        raise NotImplementedError

    def magnitude(self, *x: Array) -> Array:
        """|W|·x without the bias, for x ≥ 0."""
        raise NotImplementedError

    def offset(self) -> Array:
        """The bias, of a shape that broadcasts to the node's."""
        return np.zeros(1)

    def live(self) -> Array:
        """0 where all weights and the bias are 0, so that the value is exactly 0; else 1."""
        return np.ones(1)

    def doubt(self, x: Array) -> Array:
        """What inexact constants can change where the inputs are at most x in size."""
        return np.zeros(1)

    def back(self, rows: Rows) -> tuple[list[Rows], Array]:
        """Rows over each of the inputs, and the constants (S, R) that the bias makes."""
        raise NotImplementedError

    def neurons(self, indices: Integers) -> tuple[list[Rows], Array]:
        """`back` of rows that are single values, by their flat indices."""
        return self.back(select(indices, self.shape))


@dataclass
class Input(Node):
    """The image."""


@dataclass
class Convolution(Node):
    """`matrix` (out, kh·kw·in/groups) and `bias` (out,) on a map of shape `source`.

    `padding` is (top, left, bottom, right). Each group of output channels looks at its own group of input channels.
    """

    source: Shape
    matrix: Array
    bias: Array
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int = 1

    def __post_init__(self) -> None:
        self.terms = self.matrix.shape[1] + 1
        self.back_terms = self.shape[2] // self.groups * self.kernel[0] * self.kernel[1]
        self.sizes = np.abs(self.matrix)

    def _apply(self, x: Array, matrix: Array) -> Array:
        if x.ndim > 3:
            return np.stack([self._apply(one, matrix) for one in x])
        top, left, bottom, right = self.padding
        (kh, kw), (dy, dx) = self.kernel, self.dilation
        x = np.pad(x, ((top, bottom), (left, right), (0, 0)))
        windows = sliding_window_view(x, (dy * (kh - 1) + 1, dx * (kw - 1) + 1), axis=(0, 1))
        windows = windows[:: self.stride[0], :: self.stride[1], :, ::dy, ::dx].transpose(0, 1, 3, 4, 2)
        if self.groups == 1:
            result: Array = windows.reshape(-1, matrix.shape[1]) @ matrix.T
            return result.reshape(self.shape)
        parts = windows.reshape(-1, kh * kw, self.groups, x.shape[2] // self.groups).transpose(2, 0, 1, 3)
        seen = parts.reshape(self.groups, -1, matrix.shape[1])
        result = seen @ matrix.reshape(self.groups, -1, matrix.shape[1]).transpose(0, 2, 1)
        return result.transpose(1, 0, 2).reshape(self.shape)

    def forward(self, *x: Array) -> Array:
        return self._apply(x[0], self.matrix) + self.bias

    def magnitude(self, *x: Array) -> Array:
        return self._apply(x[0], self.sizes)

    def offset(self) -> Array:
        return self.bias

    def live(self) -> Array:
        return (self.matrix.any(1) | (self.bias != 0)).astype(np.float64)

    def back(self, rows: Rows) -> tuple[list[Rows], Array]:
        a = rows.a
        sides, count, h, w, _ = a.shape
        constant = a.sum((2, 3)) @ self.bias
        (kh, kw), (sy, sx), (dy, dx), channels = self.kernel, self.stride, self.dilation, self.source[2]
        spread = self._spread(a.reshape(-1, a.shape[4])).reshape(sides, count, h, w, kh, kw, channels)
        out = np.zeros((sides, count, (h - 1) * sy + dy * (kh - 1) + 1, (w - 1) * sx + dx * (kw - 1) + 1, channels))
        for i in range(kh):
            target = out[:, :, i * dy : i * dy + (h - 1) * sy + 1 : sy]
            if dx == 1 and w <= 4 * kw:  # few positions: whole rows of the kernel lie side by side
                for j in range(w):
                    target[:, :, :, j * sx : j * sx + kw] += spread[:, :, :, j, i]
            else:
                for j in range(kw):
                    target[:, :, :, j * dx : j * dx + (w - 1) * sx + 1 : sx] += spread[:, :, :, :, i, j]
        top, left = self.padding[:2]
        if rows.origin is None:
            return [Rows(self._crop(out))], constant
        return [self._placed(Rows(out, rows.origin * np.array([sy, sx]) - [top, left]))], constant

    def _spread(self, a: Array) -> Array:
        """Coefficients (N, out) times the kernels: (N, kh·kw·in)."""
        if self.groups == 1:
            return a @ self.matrix
        width = self.matrix.shape[1]
        parts = a.reshape(len(a), self.groups, -1).transpose(1, 0, 2) @ self.matrix.reshape(self.groups, -1, width)
        kernel = self.kernel[0] * self.kernel[1]
        return parts.reshape(self.groups, len(a), kernel, -1).transpose(1, 2, 0, 3).reshape(len(a), -1)

    def neurons(self, indices: Integers) -> tuple[list[Rows], Array]:
        position, channel = indices // self.shape[2], indices % self.shape[2]
        corner = np.stack([position // self.shape[1], position % self.shape[1]], axis=1)
        (kh, kw), (dy, dx) = self.kernel, self.dilation
        out = np.zeros((1, len(indices), dy * (kh - 1) + 1, dx * (kw - 1) + 1, self.source[2]))
        here = self.matrix[channel].reshape(-1, kh, kw, self.source[2] // self.groups)
        group = channel // (self.shape[2] // self.groups)
        by_group = out.reshape(*out.shape[:4], self.groups, -1)[0, :, ::dy, ::dx]
        by_group[np.arange(len(indices)), :, :, group] = here
        return [self._placed(Rows(out, corner * self.stride - self.padding[:2]))], self.bias[channel][None]

    def _crop(self, out: Array) -> Array:
        """Whole maps without the padding, and with the far rows and columns that no kernel position reached."""
        top, left = self.padding[:2]
        height, width, _ = self.source
        out = out[:, :, top : top + height, left : left + width]
        missing = height - out.shape[2], width - out.shape[3]
        return np.pad(out, ((0, 0), (0, 0), (0, missing[0]), (0, missing[1]), (0, 0))) if any(missing) else out

    def _placed(self, rows: Rows) -> Rows:
        """Windows without coefficients in the padding, or whole maps where windows are no smaller."""
        if rows.a.shape[2] * rows.a.shape[3] >= self.source[0] * self.source[1]:
            return rows.whole(self.source)
        rows.clear_outside(self.source)
        return rows


@dataclass
class Dense(Node):
    """`weight` (out, in) and `bias` (out,) on a vector, or on a map of shape `source` as a vector."""

    source: Shape
    weight: Array
    bias: Array

    def __post_init__(self) -> None:
        self.terms, self.back_terms = self.weight.shape[1] + 1, len(self.weight)
        self.sizes = np.abs(self.weight)

    def forward(self, *x: Array) -> Array:
        return _flat(x[0], self.source) @ self.weight.T + self.bias

    def magnitude(self, *x: Array) -> Array:
        return _flat(x[0], self.source) @ self.sizes.T

    def offset(self) -> Array:
        return self.bias

    def live(self) -> Array:
        return (self.weight.any(1) | (self.bias != 0)).astype(np.float64)

    def back(self, rows: Rows) -> tuple[list[Rows], Array]:
        return [self._over(rows.a @ self.weight)], rows.a @ self.bias

    def neurons(self, indices: Integers) -> tuple[list[Rows], Array]:
        return [self._over(self.weight[indices][None])], self.bias[indices][None]

    def _over(self, a: Array) -> Rows:
        return Rows(a.reshape(*a.shape[:2], *self.source))


@dataclass
class Scale(Node):
    """weight·x + bias, value by value. The real constants are within `weight_doubt` and `bias_doubt` of these."""

    weight: Array
    bias: Array
    weight_doubt: Array = field(default_factory=lambda: np.zeros(1))
    bias_doubt: Array = field(default_factory=lambda: np.zeros(1))
    terms = 2

    def forward(self, *x: Array) -> Array:
        return x[0] * self.weight + self.bias

    def magnitude(self, *x: Array) -> Array:
        return x[0] * np.abs(self.weight)

    def offset(self) -> Array:
        return self.bias

    def live(self) -> Array:
        return ((self.weight != 0) | (self.bias != 0)).astype(np.float64)

    def doubt(self, x: Array) -> Array:
        return x * self.weight_doubt + self.bias_doubt

    def back(self, rows: Rows) -> tuple[list[Rows], Array]:
        weight, bias = rows.view(self.weight), rows.view(self.bias)
        constant = (rows.a * bias).reshape(*rows.a.shape[:2], -1).sum(2)
        return [Rows(rows.a * weight, rows.origin)], constant


@dataclass
class Gather(Node):
    """Values moved to other places: reshape, transpose, pad. `index` (size,) into the flat input, −1 for 0. Exact."""

    source: Shape
    index: Integers

    def __post_init__(self) -> None:
        used = self.index >= 0
        places, size = self.index[used], math.prod(self.source)
        self.back_terms = int(np.bincount(places, minlength=1).max()) if len(places) else 1
        #: if they are every so many rows and columns of a map, from one on: first row and column, steps
        self.steps = self._steps()
        ones = np.ones(len(places))
        self.moves = sparse.csr_matrix((ones, (used.nonzero()[0], places)), shape=(self.size, size))

    def _steps(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The first row and column and the steps between them, where all channels of a part of a map are taken."""
        if len(self.shape) != 3 or len(self.source) != 3 or self.shape[2] != self.source[2] or not self.size:
            return None
        (height, width, channels), index = self.source, self.index.reshape(self.shape)
        start = int(index[0, 0, 0])
        y, x = start // channels // width, start // channels % width
        sy = int(index[1, 0, 0] - start) // (width * channels) if self.shape[0] > 1 else 1
        sx = int(index[0, 1, 0] - start) // channels if self.shape[1] > 1 else 1
        if start < 0 or min(sy, sx) < 1:
            return None
        rows, columns = y + sy * np.arange(self.shape[0]), x + sx * np.arange(self.shape[1])
        if rows[-1] >= height or columns[-1] >= width:
            return None
        places = (rows[:, None, None] * width + columns[:, None]) * channels + np.arange(channels)
        return ((y, x), (sy, sx)) if np.array_equal(places, index) else None

    def _spaced(self, rows: Rows) -> Rows:
        """Rows over a map of which this is every so many rows and columns: zeros between the coefficients."""
        assert self.steps is not None
        (y, x), (sy, sx) = self.steps
        h, w = rows.a.shape[2:4]
        if rows.origin is None:
            whole = np.zeros((*rows.a.shape[:2], *self.source))
            whole[:, :, y : y + (h - 1) * sy + 1 : sy, x : x + (w - 1) * sx + 1 : sx] = rows.a
            return Rows(whole)
        out = np.zeros((*rows.a.shape[:2], (h - 1) * sy + 1, (w - 1) * sx + 1, self.source[2]))
        out[:, :, ::sy, ::sx] = rows.a
        placed = Rows(out, rows.origin * np.array([sy, sx]) + [y, x])
        return placed.whole(self.source) if out[0, 0].size >= math.prod(self.source) else placed

    def passed(self, rows: Rows) -> int:
        """Numbers that one of these rows has on its way back through here."""
        if self.steps is None or rows.origin is None:
            return self.size + math.prod(self.source)
        h, w, channels = rows.a.shape[2:]
        (sy, sx) = self.steps[1]
        return rows.a[0, 0].size + min(((h - 1) * sy + 1) * ((w - 1) * sx + 1) * channels, math.prod(self.source))

    @property
    def is_permutation(self) -> bool:
        """Whether every input appears exactly once, and nothing else."""
        all_differ = len(np.unique(self.index)) == len(self.index) == math.prod(self.source)
        return all_differ and bool((self.index >= 0).all())

    def forward(self, *x: Array) -> Array:
        flat = _flat(x[0], self.source)
        moved = np.where(self.index >= 0, flat[..., np.maximum(self.index, 0)], 0.0)
        return moved.reshape(*flat.shape[:-1], *self.shape)

    def magnitude(self, *x: Array) -> Array:
        return self.forward(*x)

    def live(self) -> Array:
        return np.zeros(1)

    def back(self, rows: Rows) -> tuple[list[Rows], Array]:
        sides, count = rows.a.shape[:2]
        if self.steps is not None:
            return [self._spaced(rows)], np.zeros((sides, count))
        flat = rows.whole(self.shape).a.reshape(sides * count, -1)
        out = (self.moves.T @ flat.T).T
        return [Rows(np.ascontiguousarray(out).reshape(sides, count, *self.source))], np.zeros((sides, count))


@dataclass
class Sum(Node):
    """Σ ± input."""

    signs: list[float]

    def __post_init__(self) -> None:
        self.terms = len(self.signs)

    def forward(self, *x: Array) -> Array:
        return np.sum([sign * part for sign, part in zip(self.signs, x, strict=True)], axis=0)

    def magnitude(self, *x: Array) -> Array:
        return np.sum(x, axis=0)

    def live(self) -> Array:
        return np.zeros(1)  # sums do not underflow

    def back(self, rows: Rows) -> tuple[list[Rows], Array]:
        parts = [rows if sign == 1 else Rows(sign * rows.a, rows.origin) for sign in self.signs]
        return parts, np.zeros(rows.a.shape[:2])


@dataclass
class Site(Node):
    """An activation: bend·relu(z) + slope·z + shift, value by value; `number` is its place among those of the file.

    A plain ReLU has bend 1 and nothing else; a leaky one has slope a and bend 1 − a; a grafted neuron has bend 0.
    """

    number: int
    bend: Array
    slope: Array
    shift: Array

    def forward(self, *x: Array) -> Array:
        return self.bend * np.maximum(x[0], 0) + self.slope * x[0] + self.shift


def _flat(x: Array, shape: Shape) -> Array:
    """Values of this shape, or many of them, as vectors."""
    return x.reshape(*x.shape[: x.ndim - len(shape)], -1)
