"""What an ONNX file computes from constants alone, as exporters leave it around Pad and Reshape.

Only operations that are exact: moving things, and integers. Arithmetic on floats is refused, because it would have to
be rounded, and what is proven is about the weights in the file.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lingraft.certificates.protobuf import MAX_NUMBERS
from lingraft.errors import LingraftError

Attributes = dict[str, Any]


def take(attributes: Attributes, name: str, default: Any, *allowed: Any) -> Any:
    """Remove an attribute and give its value, which must be one of the `allowed` if these are given."""
    value = attributes.pop(name, default)
    if allowed and value not in allowed:
        raise LingraftError(f"{name} = {value} is not supported")
    return value


def integers(attributes: Attributes, name: str, inputs: Sequence[Any], place: int) -> list[int] | None:
    """A list of integers that old operator sets give as an attribute, new ones as an input; None if left out."""
    given = attributes.pop(name, None)
    if given is None and place < len(inputs):
        given = inputs[place]
    if given is None:
        return None
    if isinstance(given, np.ndarray) and given.dtype.kind not in "iu":
        raise LingraftError(f"{name} is not made of integers")
    return [int(n) for n in np.ravel(given)]


def new_shape(old: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """The shape that Reshape makes of `old`: 0 stands for the old size, one −1 for what is left."""
    shape = [old[i] if n == 0 and i < len(old) else n for i, n in enumerate(wanted)]
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known > 0:
        shape = [math.prod(old) // known if n == -1 else n for n in shape]
    if min(shape, default=1) < 0 or math.prod(shape) != math.prod(old):
        raise LingraftError(f"the shape {list(old)} cannot become {list(wanted)}")
    return shape


def squeezed(old: Sequence[int], axes: Sequence[int] | None) -> list[int]:
    """The shape without the given axes (default: all) of size 1."""
    chosen = {a % len(old) for a in axes} if axes is not None else {i for i, n in enumerate(old) if n == 1}
    if any(old[a] != 1 for a in chosen):
        raise LingraftError(f"axes {sorted(chosen)} of the shape {list(old)} are not of size 1")
    return [n for i, n in enumerate(old) if i not in chosen]


def unsqueezed(old: Sequence[int], axes: Sequence[int]) -> list[int]:
    """The shape with new axes of size 1, which are at `axes` of the result."""
    rest, rank = list(old), len(old) + len(axes)
    places = {a % rank for a in axes}
    return [1 if i in places else rest.pop(0) for i in range(rank)]


def fold(operation: str, inputs: list[Any], attributes: Attributes) -> np.ndarray | None:
    """The result of an operation on constants, None if it is none of those that are computed here."""
    function = _FOLDS.get(operation)
    if function is None:
        return None
    result = np.asarray(function(inputs, attributes))
    if attributes:
        raise LingraftError(f"attribute {next(iter(attributes))} is not supported")
    return result


def _constant(x: list[Any], a: Attributes) -> np.ndarray:
    for name in ("value", "value_float", "value_int", "value_ints"):
        if name in a:
            value = a.pop(name)
            return value if name == "value" else np.array(value, dtype=np.float32 if "float" in name else np.int64)
    raise LingraftError("a constant without a value")


def _constant_of_shape(x: list[Any], a: Attributes) -> np.ndarray:
    shape = [int(n) for n in np.ravel(x[0])]
    if min(shape, default=0) < 0 or math.prod(shape) > MAX_NUMBERS:
        raise LingraftError(f"a constant of shape {shape}")
    fill = take(a, "value", np.zeros(1, np.float32))
    return np.full(shape, fill.reshape(-1)[0])


def _cast(x: list[Any], a: Attributes) -> np.ndarray:
    kinds = {1: np.float32, 7: np.int64, 6: np.int32, 11: np.float64}
    to = take(a, "to", 0, *kinds)
    result = x[0].astype(kinds[to])
    if not np.array_equal(result.astype(np.float64), x[0].astype(np.float64)):
        raise LingraftError("a conversion that rounds")
    return np.asarray(result)


def _slice(x: list[Any], a: Attributes) -> np.ndarray:
    starts, ends = integers(a, "starts", x, 1) or [], integers(a, "ends", x, 2) or []
    axes = integers(a, "axes", x, 3) or list(range(len(starts)))
    steps = integers(a, "steps", x, 4) or [1] * len(starts)
    cut: list[slice] = [slice(None)] * x[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cut[axis] = slice(start, None if step < 0 and end < -x[0].shape[axis] else end, step)
    return np.asarray(x[0][tuple(cut)])


def _whole_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: list[Any], a: Attributes) -> Any:
        if any(part.dtype.kind not in "iu" for part in x):
            raise LingraftError("arithmetic on constants that are not integers")
        return function(*x)

    return compute


_FOLDS: dict[str, Callable[[list[Any], Attributes], Any]] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Cast": _cast,
    "Slice": _slice,
    "Identity": lambda x, a: x[0],
    "Concat": lambda x, a: np.concatenate(x, take(a, "axis", 0)),
    "Gather": lambda x, a: np.take(x[0], x[1], take(a, "axis", 0)),
    "Reshape": lambda x, a: x[0].reshape(new_shape(x[0].shape, integers(a, "shape", x, 1) or [])),
    "Squeeze": lambda x, a: x[0].reshape(squeezed(x[0].shape, integers(a, "axes", x, 1))),
    "Unsqueeze": lambda x, a: x[0].reshape(unsqueezed(x[0].shape, integers(a, "axes", x, 1) or [])),
    "Transpose": lambda x, a: x[0].transpose(take(a, "perm", None)),
    "Add": _whole_numbers(np.add),
    "Sub": _whole_numbers(np.subtract),
    "Mul": _whole_numbers(np.multiply),
}
