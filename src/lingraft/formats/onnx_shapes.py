"""How operations that move, pool, add and multiply values are written in ONNX."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.formats.onnx_layers import WRITERS, Padded, Shape, constant, write_pad, writes
from lingraft.formats.onnx_writer import OnnxWriter, Value, named
from lingraft.model.operations import KNOWN
from lingraft.model.operations.functions import axis_of_softmax
from lingraft.model.operations.pooling import reduced, side_matrix
from lingraft.model.operations.weights import each

__all__ = ["WRITERS"]

# Nothing to do


@writes("identity", "dropout")
def _same(to: OnnxWriter, shape: Shape, x: Value, *settings: Any) -> Value:
    return x


# Shapes. What the arguments were does not matter: the shape of the result is known.


@writes("flatten", "unflatten", "reshape", "squeeze", "unsqueeze")
def _reshape(to: OnnxWriter, shape: Shape, x: Value, *sizes: Any) -> Value:
    if tuple(shape) == x.shape:
        return x
    if not shape or shape[0] != x.shape[0]:
        raise LingraftError(f"a change of shape from {x.shape} to {tuple(shape)} (for two images) mixes the images.")
    if len(shape) == 2:
        return to.value(shape, "Flatten", x.name, axis=1)
    return to.value(shape, "Reshape", x.name, to.integers("shape", [to.batch, *shape[1:]]))


@writes("permute")
def _permute(to: OnnxWriter, shape: Shape, x: Value, *dims: Any) -> Value:
    order = [d % len(x.shape) for d in _numbers(dims)]
    if order[0] != 0:
        raise LingraftError(f"the order {order} moves the batch dimension.")
    return to.value(shape, "Transpose", x.name, perm=order)


@writes("transpose")
def _transpose(to: OnnxWriter, shape: Shape, x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(x.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(to, shape, x, order)


def _numbers(given: Sequence[Any]) -> Sequence[int]:
    """Numbers that may be given one by one or as one sequence."""
    return given[0] if len(given) == 1 and not isinstance(given[0], int) else given


@writes("expand")
def _expand(to: OnnxWriter, shape: Shape, x: Value, *sizes: Any) -> Value:
    if len(shape) != len(x.shape) or shape[0] != x.shape[0]:
        raise LingraftError(f"expanding {x.shape} to {tuple(shape)} (for two images) moves or repeats the images.")
    return to.value(shape, "Expand", x.name, to.integers("shape", [1, *shape[1:]]))


def _rearranged(to: OnnxWriter, shape: Shape, x: Value, apart: Sequence[int], order: Sequence[int]) -> Value:
    """Dimensions taken apart, in another order, and put together."""
    sizes = [x.shape[0], *apart]
    split = _reshape(to, sizes, x)
    return _reshape(to, shape, _permute(to, [sizes[d] for d in order], split, order))


@writes("pixel shuffle")
def _shuffle(to: OnnxWriter, shape: Shape, x: Value, factor: int) -> Value:
    _, channels, height, width = x.shape
    apart = [channels // factor**2, factor, factor, height, width]
    return _rearranged(to, shape, x, apart, [0, 1, 4, 2, 5, 3])


@writes("pixel unshuffle")
def _unshuffle(to: OnnxWriter, shape: Shape, x: Value, factor: int) -> Value:
    _, channels, height, width = x.shape
    apart = [channels, height // factor, factor, width // factor, factor]
    return _rearranged(to, shape, x, apart, [0, 1, 3, 5, 2, 4])


@writes("channel shuffle")
def _shuffle_channels(to: OnnxWriter, shape: Shape, x: Value, groups: int) -> Value:
    _, channels, *sides = x.shape
    order = [0, 2, 1, *range(3, 3 + len(sides))]
    return _rearranged(to, shape, x, [groups, channels // groups, *sides], order)


# Parts of values


def _slice(to: OnnxWriter, x: Value, dim: int, start: int, stop: int, step: int = 1) -> Value:
    """The values from `start` to before `stop` along one dimension."""
    dim = dim % len(x.shape)
    if dim == 0:
        raise LingraftError("an index of the batch dimension chooses among the images.")
    if (start, stop, step) == (0, x.shape[dim], 1):
        return x
    numbers = [to.integers(name, [n]) for name, n in (("start", start), ("stop", stop), ("dim", dim), ("step", step))]
    size = len(range(start, max(stop, -1), step))
    return to.value((*x.shape[:dim], size, *x.shape[dim + 1 :]), "Slice", x.name, *numbers)


@writes("narrow")
def _narrow(to: OnnxWriter, shape: Shape, x: Value, dim: int, start: int, length: int) -> Value:
    start = start % x.shape[dim]
    return _slice(to, x, dim, start, start + length)


@writes("select")
def _select(to: OnnxWriter, shape: Shape, x: Value, dim: int, index: int) -> Value:
    index = index % x.shape[dim]
    return _reshape(to, shape, _slice(to, x, dim, index, index + 1))


@writes("flip")
def _flip(to: OnnxWriter, shape: Shape, x: Value, *dims: Any) -> Value:
    for dim in _numbers(dims):
        x = _slice(to, x, dim, x.shape[dim] - 1, -x.shape[dim] - 1, -1)
    return x


@writes("chunk", "split")
def _split(to: OnnxWriter, shapes: Sequence[Shape], x: Value, sizes: Any, dim: int) -> list[Value]:
    parts, start = [], 0
    for shape in shapes:
        parts.append(_slice(to, x, dim, start, start + shape[dim]))
        start += shape[dim]
    return parts


@writes("unbind")
def _unbind(to: OnnxWriter, shapes: Sequence[Shape], x: Value, dim: int) -> list[Value]:
    return [_select(to, shape, x, dim, i) for i, shape in enumerate(shapes)]


@writes("index")
def _index(to: OnnxWriter, shape: Shape, x: Any, index: Any) -> Any:
    """Slices and numbers one dimension at a time; the numbers' dimensions, and new ones, by a change of shape."""
    if not isinstance(x, Value):
        return x[index]  # one of several values
    wanted = list(index) if isinstance(index, tuple) else [index]
    if any(part is Ellipsis for part in wanted):
        place = next(i for i, part in enumerate(wanted) if part is Ellipsis)
        given = sum(part is not None and part is not Ellipsis for part in wanted)
        wanted[place : place + 1] = [slice(None)] * (len(x.shape) - given)
    dim, chosen = 0, 0
    for part in wanted:
        if part is None:
            continue
        if isinstance(part, slice):
            start, stop, step = part.indices(x.shape[dim])
            x = x if (start, stop, step) == (0, x.shape[dim], 1) else _slice(to, x, dim, start, stop, step)
        elif isinstance(part, int):
            x = _slice(to, x, dim, part % x.shape[dim], part % x.shape[dim] + 1)
        else:
            chosen += 1
            x = _choose(to, x, dim, part)
        dim += 1
    if chosen > 1 or (chosen and any(isinstance(part, int) for part in wanted)):
        raise LingraftError("an index with several lists cannot be written as ONNX. Index one dimension at a time.")
    return _reshape(to, shape, x)


def _choose(to: OnnxWriter, x: Value, dim: int, places: Any) -> Value:
    numbers = torch.as_tensor(places)
    if dim == 0 or numbers.dim() != 1 or numbers.dtype == torch.bool:
        raise LingraftError("an index that is no number, slice or list of numbers cannot be written as ONNX.")
    shape = (*x.shape[:dim], len(numbers), *x.shape[dim + 1 :])
    return to.value(shape, "Gather", x.name, to.integers("places", numbers.tolist()), axis=dim)


# Values put together


@writes("concatenation")
def _cat(to: OnnxWriter, shape: Shape, tensors: Sequence[Any], dim: int) -> Value:
    axis = dim % len(shape)
    if axis == 0:
        raise LingraftError("concatenation along the batch dimension cannot be written as ONNX.")
    if all(isinstance(part, Value) for part in tensors):
        return to.value(shape, "Concat", *[part.name for part in tensors], axis=axis)
    # a constant has no batch dimension to join along: every value with zeros beside it, plus the constants
    joined = torch.cat([torch.zeros(1, *p.shape[1:]) if isinstance(p, Value) else p[:1] for p in tensors], axis)
    result, start = to.weight("constant", joined), 0
    for part in tensors:
        if isinstance(part, Value):
            after = shape[axis] - start - part.shape[axis]
            rest = [0] * (len(shape) - axis - 1)
            result = to.node("Add", write_pad(to, part, [start, *rest], [after, *rest], 0.0), result)
        start += part.shape[axis]
    return named(shape, result)


@writes("stack")
def _stack(to: OnnxWriter, shape: Shape, tensors: Sequence[Any], dim: int) -> Value:
    axis = dim % len(shape)
    single = [1 if d == axis else n for d, n in enumerate(shape)]
    parts = [_reshape(to, single, p) if isinstance(p, Value) else p.unsqueeze(axis) for p in tensors]
    return _cat(to, shape, parts, axis)


@writes("padding")
def _pad(to: OnnxWriter, shape: Shape, x: Value, pad: Sequence[int], mode: str, value: Any) -> Value:
    # torch counts from the last dimension
    before, after = list(pad[0::2])[::-1], list(pad[1::2])[::-1]
    first = len(shape) - len(before)
    for i, (b, a) in enumerate(zip(before, after, strict=True)):  # a negative border cuts off
        size = x.shape[first + i]
        x = _slice(to, x, first + i, max(0, -b), size - max(0, -a)) if min(b, a) < 0 else x
    before, after = [max(0, n) for n in before], [max(0, n) for n in after]
    if not any(before) and not any(after):
        return x
    if mode == "constant":
        if value:
            return named(shape, write_pad(to, x, before, after, float(value)))
        return Padded(to, shape, x, before, after)
    if mode in ("reflect", "replicate"):
        kind = {"reflect": "reflect", "replicate": "edge"}[mode]
        return named(shape, write_pad(to, x, before, after, 0.0, kind))
    for i, (b, a) in enumerate(zip(before, after, strict=True)):  # circular
        dim, size = first + i, x.shape[first + i]
        sides = [_slice(to, x, dim, size - b, size)] * bool(b), [_slice(to, x, dim, 0, a)] * bool(a)
        parts = [*sides[0], x, *sides[1]]
        grown = (*x.shape[:dim], size + b + a, *x.shape[dim + 1 :])
        x = x if len(parts) == 1 else _cat(to, grown, parts, dim)
    return x


# Pooling, means, sums, resizing


def _over_sides(to: OnnxWriter, shape: Shape, x: Value, operation: str, **settings: Any) -> Value:
    """An operation on each channel by itself, as a product with a matrix."""
    sides, results = x.shape[2:], math.prod(shape[2:])
    matrix = side_matrix(operation, sides, results, **settings).t()
    flat = _reshape(to, (*x.shape[:2], math.prod(sides)), x)
    product = to.value((*x.shape[:2], results), "MatMul", flat.name, to.weight("weights", matrix))
    return _reshape(to, shape, product)


class _Windows:
    """The windows of a pooling, with how ONNX has to count them to get as many as the result has."""

    def __init__(self, shape: Shape, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any = 1):
        sides, results = x.shape[2:], shape[2:]
        rank = len(sides)
        self.kernel, self.padding, self.dilations = (list(each(n, rank)) for n in (kernel, padding, dilation))
        self.strides = list(each(stride or kernel, rank))
        spare = [
            (n + 2 * p - d * (k - 1) - 1) - (m - 1) * s
            for n, m, k, s, p, d in zip(
                sides, results, self.kernel, self.strides, self.padding, self.dilations, strict=True
            )
        ]
        #: a window of the result reaches over the padded end of a side
        self.over = any(n < 0 for n in spare)
        #: how far windows reach over the end, where counting upwards along all sides would give more windows than torch
        #: makes: it leaves out one that begins in the padding
        self.extra = [max(0, -n) for n in spare] if self.over and any(n > 0 for n in spare) else None

    @property
    def attributes(self) -> dict[str, Any]:
        """What all kinds of pooling have."""
        after = [p + e for p, e in zip(self.padding, self.extra or [0] * len(self.padding), strict=True)]
        places = {"kernel_shape": self.kernel, "strides": self.strides, "pads": [*self.padding, *after]}
        return {**places, "ceil_mode": int(self.over and self.extra is None)}


@writes("max pooling 1d", "max pooling 2d")
def _max_pool(
    to: OnnxWriter,
    shape: Shape,
    x: Value,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Value:
    windows = _Windows(shape, x, kernel_size, stride, padding, dilation)
    return to.value(shape, "MaxPool", x.name, dilations=windows.dilations, **windows.attributes)


@writes("average pooling 1d", "average pooling 2d")
def _avg_pool(
    to: OnnxWriter,
    shape: Shape,
    x: Value,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    windows = _Windows(shape, x, kernel_size, stride, padding)
    counted = count_include_pad and any(windows.padding)
    # what is over the end counts for no divisor in torch; with counted padding ONNX says nothing of it
    if divisor_override is not None or (windows.over and (counted or windows.extra)):
        settings: dict[str, Any] = {} if len(shape) == 3 else {"divisor_override": divisor_override}
        return _over_sides(
            to, shape, x, f"average pooling {len(shape) - 2}d", kernel_size=kernel_size, stride=stride, padding=padding,
            ceil_mode=ceil_mode, count_include_pad=count_include_pad, **settings,
        )  # fmt: skip
    return to.value(shape, "AveragePool", x.name, count_include_pad=int(counted), **windows.attributes)


@writes("adaptive average pooling 1d", "adaptive average pooling 2d")
def _adaptive_avg_pool(to: OnnxWriter, shape: Shape, x: Value, output_size: Any) -> Value:
    sides, results = x.shape[2:], shape[2:]
    if math.prod(results) == 1:
        return to.value(shape, "GlobalAveragePool", x.name)
    if any(n % m for n, m in zip(sides, results, strict=True)):
        return _over_sides(to, shape, x, f"adaptive average pooling {len(sides)}d", output_size=output_size)
    kernel = [n // m for n, m in zip(sides, results, strict=True)]
    return _avg_pool(to, shape, x, kernel, None, 0, False, True, None)


@writes("resizing")
def _resize(to: OnnxWriter, shape: Shape, x: Value, *settings: Any) -> Value:
    names = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    given = dict(zip(names, settings, strict=True))
    sides, results = x.shape[2:], shape[2:]
    whole = all(m % n == 0 for n, m in zip(sides, results, strict=True))
    if not whole or (given["mode"] not in ("nearest", "nearest-exact") and len(sides) != 2) or given["mode"] == "area":
        return _over_sides(to, shape, x, "resizing", **given)
    scales = to.weight("scales", torch.tensor([1, 1, *(m // n for n, m in zip(sides, results, strict=True))]))
    if given["mode"] in ("nearest", "nearest-exact"):
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        place = "align_corners" if given["align_corners"] else "half_pixel"
        how = {"mode": "linear", "coordinate_transformation_mode": place}
    return to.value(shape, "Resize", x.name, "", scales, **how)


@writes("mean")
def _mean(to: OnnxWriter, shape: Shape, x: Value, dim: Any, keepdim: bool) -> Value:
    axes = reduced(dim, len(x.shape))
    if len(x.shape) == 4 and axes == [2, 3]:  # which more tools read
        return _reshape(to, shape, to.value((*x.shape[:2], 1, 1), "GlobalAveragePool", x.name))
    return to.value(shape, "ReduceMean", x.name, axes=_without_batch(axes), keepdims=int(keepdim))


@writes("sum")
def _sum(to: OnnxWriter, shape: Shape, x: Value, dim: Any, keepdim: bool) -> Value:
    axes = to.integers("axes", _without_batch(reduced(dim, len(x.shape))))
    return to.value(shape, "ReduceSum", x.name, axes, keepdims=int(keepdim))


def _without_batch(axes: list[int]) -> list[int]:
    if 0 in axes:
        raise LingraftError("a sum over the batch dimension adds up the images.")
    return axes


# Arithmetic


def _operand(to: OnnxWriter, value: Value | Tensor | float) -> str:
    if isinstance(value, Value):
        return value.name
    return to.weight("constant", torch.as_tensor(value))


def _arithmetic(to: OnnxWriter, shape: Shape, operation: str, left: Any, right: Any) -> Any:
    if isinstance(left, Value) and isinstance(right, Value) and len(left.shape) != len(right.shape):
        raise LingraftError(f"{left.shape} and {right.shape} have not as many dimensions.")
    if isinstance(right, Value) and operation in ("Add", "Mul"):
        left, right = right, left
    # nothing to write for x + 0 and x · 1, as the normalization of a model may be
    neutral = 1.0 if operation in ("Mul", "Div") else 0.0
    unchanged = isinstance(left, Value) and not isinstance(right, Value) and left.shape == tuple(shape)
    if unchanged and bool((torch.as_tensor(right) == neutral).all()):
        return left
    return to.value(shape, operation, _operand(to, left), _operand(to, right))


def _factored(to: OnnxWriter, value: Any, alpha: Any) -> Any:
    return _arithmetic(to, value.shape, "Mul", value, alpha) if isinstance(value, Value) else value * alpha


@writes("sum of two")
def _add(to: OnnxWriter, shape: Shape, left: Any, right: Any, alpha: Any) -> Value:
    return _arithmetic(to, shape, "Add", left, _factored(to, right, constant(alpha)))


@writes("difference")
def _sub(to: OnnxWriter, shape: Shape, left: Any, right: Any, alpha: Any) -> Value:
    return _arithmetic(to, shape, "Sub", left, _factored(to, right, constant(alpha)))


@writes("product")
def _mul(to: OnnxWriter, shape: Shape, left: Any, right: Any) -> Value:
    return _arithmetic(to, shape, "Mul", left, right)


@writes("quotient")
def _div(to: OnnxWriter, shape: Shape, left: Any, right: Any) -> Value:
    return _arithmetic(to, shape, "Div", left, right)


@writes("negation")
def _neg(to: OnnxWriter, shape: Shape, x: Value) -> Value:
    return _arithmetic(to, shape, "Mul", x, -1.0)


# Functions of each value, powers, softmax


def _bending(operation: str) -> Callable[[OnnxWriter, Shape, Value], Value]:
    """The writer of an operation that ONNX has under this name."""
    return lambda to, shape, x: to.value(shape, operation, x.name)


WRITERS.update({record.name: _bending(record.onnx[0]) for record in KNOWN.values() if record.bend is not None})


@writes("square")
def _square(to: OnnxWriter, shape: Shape, x: Value) -> Value:
    return to.value(shape, "Mul", x.name, x.name)


@writes("power")
def _power(to: OnnxWriter, shape: Shape, x: Any, exponent: Any) -> Value:
    if not isinstance(x, Value):
        raise LingraftError("a power whose exponent depends on the input cannot be written.")
    return to.value(shape, "Pow", x.name, to.weight("exponent", constant(exponent)))


@writes("softmax")
def _softmax(to: OnnxWriter, shape: Shape, x: Value, dim: Any, *rest: Any) -> Value:
    axis = axis_of_softmax(dim, len(shape))
    if axis == 0:
        raise LingraftError("a softmax over the batch dimension mixes the images.")
    return to.value(shape, "Softmax", x.name, axis=axis)
