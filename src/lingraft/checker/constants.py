"""What an ONNX file computes from constants alone, as exporters leave it around Pad and Reshape.

Only operations that are exact: moving things, and integers. Arithmetic on floats is refused, because it would have to
be rounded, and what is proven is about the weights in the file. Where NumPy and ONNX read the same numbers in different
ways (axes out of range, starts of slices, repeated axes, overflow), ONNX's rule stands here, or the node is refused.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lingraft.errors import LingraftError

Attributes = dict[str, Any]


def take(attributes: Attributes, name: str, default: Any, *allowed: Any) -> Any:
    """An attribute's value, which must be one of the `allowed` if these are given."""
    value = attributes.get(name, default)
    if allowed and value not in allowed:
        raise LingraftError(f"{name} = {value} is not supported")
    return value


def integers(attributes: Attributes, name: str, inputs: Sequence[Any], place: int) -> list[int] | None:
    """A list of integers that old operator sets give as an attribute, new ones as an input; None if left out."""
    given = attributes.get(name)
    if given is None and place < len(inputs):
        given = inputs[place]
    if given is None:
        return None
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise LingraftError(f"{name} is not a list")
    return [int(n) for n in given]


def axis_of(axis: int, rank: int) -> int:
    """The axis of a tensor of that rank, which may be counted from the end."""
    if not -rank <= axis < rank:
        raise LingraftError(f"axis {axis} of {rank} does not exist")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """The same for several: at least one, none twice."""
    result = [axis_of(axis, rank) for axis in axes]
    if not result or len(set(result)) != len(result):
        raise LingraftError(f"the axes {list(axes)}, which are none or not different")
    return result


def new_shape(old: Sequence[int], wanted: Sequence[int], allow_zero: bool) -> list[int]:
    """The shape that Reshape makes of `old`: 0 stands for the old size, one −1 for what is left."""
    if allow_zero and 0 in wanted:
        raise LingraftError("a shape with a size of 0")
    shape = [old[i] if n == 0 and i < len(old) else n for i, n in enumerate(wanted)]
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known > 0:
        shape = [math.prod(old) // known if n == -1 else n for n in shape]
    if min(shape, default=1) < 1 or math.prod(shape) != math.prod(old):
        raise LingraftError(f"the shape {list(old)} cannot become {list(wanted)}")
    return shape


def squeezed(old: Sequence[int], axes: Sequence[int] | None) -> list[int]:
    """The shape without the given axes (default: all) of size 1."""
    chosen = {i for i, n in enumerate(old) if n == 1} if axes is None else set(axes_of(axes, len(old)))
    if any(old[a] != 1 for a in chosen):
        raise LingraftError(f"axes {sorted(chosen)} of the shape {list(old)} are not of size 1")
    return [n for i, n in enumerate(old) if i not in chosen]


def unsqueezed(old: Sequence[int], axes: Sequence[int]) -> list[int]:
    """The shape with new axes of size 1, which are at `axes` of the result."""
    rest, rank = list(old), len(old) + len(axes)
    places = axes_of(axes, rank)
    return [1 if i in places else rest.pop(0) for i in range(rank)]


def order_of(attributes: Attributes, rank: int) -> list[int]:
    """The order of axes that Transpose makes."""
    order = take(attributes, "perm", list(range(rank))[::-1])
    if sorted(order) != list(range(rank)):
        raise LingraftError(f"an order {order} of {rank} axes")
    return list(order)


def slice_places(shape: Sequence[int], attributes: Attributes, inputs: Sequence[Any], version: int) -> list[np.ndarray]:
    """For every axis the places that Slice takes; `inputs` are those behind the first."""
    starts, ends, axes, steps = (integers(attributes, name, inputs, i) for i, name in enumerate(_SLICE))
    if starts is None or ends is None or len(starts) != len(ends):
        raise LingraftError("a slice without starts and ends")
    axes = list(range(len(starts))) if axes is None else axes
    if version < 11 and min(axes, default=0) < 0:
        raise LingraftError(f"axes counted from the end, which operator set {version} does not know")
    axes = axes_of(axes, len(shape))
    cut = [np.arange(n) for n in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        n = shape[axis]
        if not step or not n:
            raise LingraftError("a slice with a step of 0, or of nothing")
        first, last = (i + n if i < 0 else i for i in (start, end))
        low, high = (0, n) if step > 0 else (-1, n - 1)
        first = min(max(first, 0), high)
        cut[axis] = np.arange(first, min(max(last, low), high), step)
    return cut


class Folder:
    """Computes constants from constants, as long as these do not take more than `room` numbers in all."""

    def __init__(self, version: int, room: int):
        self.version, self.room = version, room

    def fold(self, operation: str, inputs: list[Any], attributes: Attributes) -> np.ndarray:
        """The result of an operation that fits its rule."""
        function = _FOLDS.get(operation)
        if function is None:
            raise LingraftError("not supported on constants alone")
        result = np.asarray(function(self, inputs, attributes))
        if operation != "Constant":  # those take as much room in the file
            self.spend(result.size)
        return result

    def spend(self, numbers: int) -> None:
        """Called before anything large is made, and for every result."""
        self.room -= numbers
        if self.room < 0:
            raise LingraftError("the constants that the file computes from others are too large for its size")

    def _constant(self, x: list[Any], a: Attributes) -> Any:
        if len(a) != 1:
            raise LingraftError("a constant without one value")
        ((name, value),) = a.items()
        return value if name == "value" else np.array(value, dtype=np.float32 if "float" in name else np.int64)

    def _constant_of_shape(self, x: list[Any], a: Attributes) -> Any:
        shape = integers({}, "the shape", x, 0) or []
        fill = take(a, "value", np.zeros(1, np.float32))
        if min(shape, default=1) < 0 or fill.size != 1 or len(shape) > 32:
            raise LingraftError(f"a constant of shape {shape}")
        self.spend(math.prod(shape))
        return np.full(shape, fill.reshape(-1)[0])

    def _cast(self, x: list[Any], a: Attributes) -> Any:
        kinds: dict[int, Any] = {1: np.float32, 7: np.int64, 6: np.int32, 11: np.float64}
        to = kinds[take(a, "to", 0, *kinds)]
        with np.errstate(invalid="ignore"):
            result = x[0].astype(to)
        # numbers up to 2⁵³ are exact in every comparison below
        if x[0].size and (np.abs(x[0].astype(np.float64)).max() > 2**53 or not np.array_equal(result, x[0])):
            raise LingraftError("a conversion that rounds")
        return result

    def _slice(self, x: list[Any], a: Attributes) -> Any:
        return x[0][np.ix_(*slice_places(x[0].shape, a, x[1:], self.version))]

    def _gather(self, x: list[Any], a: Attributes) -> Any:
        axis, index = axis_of(take(a, "axis", 0), x[0].ndim), x[1]
        n = x[0].shape[axis]
        if index.dtype not in (np.int64, np.int32) or (index.size and not -n <= index.min() <= index.max() < n):
            raise LingraftError("indices that do not exist")
        if self.version < 11 and (index < 0).any():
            raise LingraftError(f"negative indices in operator set {self.version}")
        self.spend(index.size * (x[0].size // max(1, n)))
        return np.take(x[0], index, axis)

    def _concat(self, x: list[Any], a: Attributes) -> Any:
        if len({part.dtype for part in x}) != 1 or "axis" not in a:
            raise LingraftError("constants of different types, or no axis")
        return np.concatenate(x, axis_of(a["axis"], x[0].ndim))

    def _arithmetic(self, x: list[Any], operation: Callable[[Any, Any], Any]) -> Any:
        if x[0].dtype != x[1].dtype or x[0].dtype not in (np.int64, np.int32):
            raise LingraftError("arithmetic on constants that are not integers of one type")
        self.spend(math.prod(np.broadcast_shapes(x[0].shape, x[1].shape)))
        if any(part.size and np.abs(part.astype(np.float64)).max() > 1 << 30 for part in x):
            raise LingraftError("integers that could overflow")
        if operation in (np.floor_divide, np.remainder) and ((x[0] < 0).any() or (x[1] <= 0).any()):
            raise LingraftError("a quotient of negative numbers, or by 0")
        result = operation(*(part.astype(np.int64) for part in x))
        if not np.array_equal(result.astype(x[0].dtype), result):
            raise LingraftError("integers that overflow")
        return result.astype(x[0].dtype)


_SLICE = ("starts", "ends", "axes", "steps")

_FOLDS: dict[str, Callable[[Folder, list[Any], Attributes], Any]] = {
    "Constant": Folder._constant,
    "ConstantOfShape": Folder._constant_of_shape,
    "Cast": Folder._cast,
    "Slice": Folder._slice,
    "Gather": Folder._gather,
    "Concat": Folder._concat,
    "Identity": lambda self, x, a: x[0],
    "Shape": lambda self, x, a: np.array(x[0].shape, dtype=np.int64),
    "Reshape": lambda self, x, a: x[0].reshape(
        new_shape(x[0].shape, integers(a, "shape", x, 1) or [], bool(take(a, "allowzero", 0, 0, 1)))
    ),
    "Squeeze": lambda self, x, a: x[0].reshape(squeezed(x[0].shape, integers(a, "axes", x, 1))),
    "Unsqueeze": lambda self, x, a: x[0].reshape(unsqueezed(x[0].shape, integers(a, "axes", x, 1) or [])),
    "Transpose": lambda self, x, a: x[0].transpose(order_of(a, x[0].ndim)),
    "Add": lambda self, x, a: self._arithmetic(x, np.add),
    "Sub": lambda self, x, a: self._arithmetic(x, np.subtract),
    "Mul": lambda self, x, a: self._arithmetic(x, np.multiply),
    "Div": lambda self, x, a: self._arithmetic(x, np.floor_divide),
    "Mod": lambda self, x, a: self._arithmetic(x, np.remainder),
}
