"""How each supported ONNX operation is written in torch. Dimension 0 is the batch everywhere and stays free."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.onnx_activations import READERS, read_activation
from lingraft.formats.onnx_node import OnnxNode
from lingraft.formats.onnx_patterns import PARTS, product
from lingraft.model.activations import KNOWN, named_in_onnx

Translator = Callable[[GraphBuilder, OnnxNode], fx.Node]
M = TypeVar("M", bound=nn.Module)

_TRANSLATORS: dict[str, Translator] = {**READERS, **PARTS}


def supported() -> list[str]:
    """The operations that can be read."""
    return sorted({*_TRANSLATORS, *(record.onnx for record in KNOWN.values() if record.onnx is not None)})


def translate(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """Write a node in torch."""
    if node.operation not in _TRANSLATORS and named_in_onnx(node.operation) is not None:
        return read_activation(builder, node)
    if node.operation not in _TRANSLATORS:
        raise LingraftError(
            f"{node.title}: the operation {node.operation} is not supported. Supported: {', '.join(supported())}."
        )
    return _TRANSLATORS[node.operation](builder, node)


def translates(*operations: str) -> Callable[[Translator], Translator]:
    """For `@translates("Neg")` before a function that writes such a node with torch layers or functions.

    What it writes is compared with onnxruntime whenever a file is read; the verifier must know the layers it uses.
    """

    def register(translator: Translator) -> Translator:
        for operation in operations:
            _TRANSLATORS[operation] = translator
        return translator

    return register


def _floats(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32))


def _with(module: M, **tensors: Tensor | None) -> M:
    """`module`, built without data, with these parameters and buffers."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        current = getattr(module, name)
        if current.shape != tensor.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(current.shape)}")
        setattr(module, name, nn.Parameter(tensor) if isinstance(current, nn.Parameter) else tensor)
    return module


# Fully connected layers


def _linear(builder: GraphBuilder, x: fx.Node, weight: Tensor, bias: Tensor | None) -> fx.Node:
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
    return builder.layer(_with(layer, weight=weight.contiguous(), bias=bias), x)


@translates("Gemm")
def _gemm(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    node.require("transA", 0, 0)
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    weight = alpha * _floats(node.constant(1))
    weight = weight if node.attribute("transB", 0) else weight.T
    bias = node.optional_constant(2)
    shift = None if bias is None else (beta * _floats(bias)).broadcast_to(1, weight.shape[0])[0].clone()
    return _linear(builder, node.value(0), weight, shift)


@translates("MatMul")
def _matmul(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    left, right = node.optional(0), node.optional(1)
    if isinstance(left, fx.Node) and isinstance(right, np.ndarray) and right.ndim == 2:
        return _linear(builder, left, _floats(right).T, None)
    if isinstance(right, fx.Node) and isinstance(left, np.ndarray) and left.ndim == 2:
        rank = len(builder.shape(right))
        if rank > 2:
            columns = builder.method("transpose", right, rank - 2, rank - 1)
            return builder.method("transpose", _linear(builder, columns, _floats(left), None), rank - 2, rank - 1)
    raise node.unsupported("a product that is not of a value and a constant matrix")


# Arithmetic


@translates("Add", "Sub", "Mul", "Div")
def _arithmetic(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    function: Any = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div}[node.operation]
    left, right = node.optional(0), node.optional(1)
    if isinstance(left, fx.Node) and isinstance(right, fx.Node):
        known = product(builder, left, right) if node.operation == "Mul" else None
        if known is not None:
            return known
        if node.operation in ("Mul", "Div"):
            raise node.unsupported("a product or quotient of two values, which is not piecewise linear,")
        if len(builder.shape(left)) != len(builder.shape(right)):
            raise node.unsupported("operands of different rank")
        return builder.call(function, left, right)
    if isinstance(left, fx.Node):
        x, array = left, node.constant(1)
    else:
        x, array = node.value(1), node.constant(0)
    array = np.asarray(array, dtype=np.float32)
    if array.ndim > len(builder.shape(x)) or (array.ndim == len(builder.shape(x)) and array.shape[0] != 1):
        raise node.unsupported(f"a constant of shape {array.shape} that reaches across the batch")
    if isinstance(left, fx.Node) or node.operation in ("Add", "Mul"):
        return builder.call(function, x, builder.constant(array))
    if node.operation == "Div":
        raise node.unsupported("division by a value")
    return builder.call(function, builder.constant(array), x)


@translates("BatchNormalization")
def _batch_norm(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    node.require("training_mode", 0, 0)
    node.require("spatial", 1, 1)
    node.require("is_test", 1, 1)
    node.attribute("momentum", 0.9)  # matters in training only
    if len(node.proto.output) > 1:  # which makes it training in operator sets before 14
        raise node.unsupported("the second output")
    x = node.value(0)
    rank = len(builder.shape(x))
    if rank not in (2, 3, 4):
        raise node.unsupported(f"a value of rank {rank}")
    kind = nn.BatchNorm2d if rank == 4 else nn.BatchNorm1d
    scale, shift, mean, variance = (_floats(node.constant(i)) for i in range(1, 5))
    layer = kind(len(scale), eps=node.attribute("epsilon", 1e-5), device="meta")
    _with(layer, weight=scale, bias=shift, running_mean=mean, running_var=variance)
    layer.num_batches_tracked = torch.tensor(0)
    return builder.layer(layer, x)


# Convolution and pooling


def _padding(
    node: OnnxNode, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Zeros before and after each spatial dimension."""
    rank = len(sizes)
    pads = list(node.attribute("pads", [0] * (2 * rank)))
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        totals = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(sizes, strides, reach, strict=True)]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return (small, large) if mode == "SAME_UPPER" else (large, small)
    if mode == "VALID":
        return [0] * rank, [0] * rank
    if min(pads) < 0:
        raise node.unsupported("negative padding")
    return pads[:rank], pads[rank:]


def _pad_zeros(builder: GraphBuilder, x: fx.Node, before: Sequence[int], after: Sequence[int]) -> fx.Node:
    """Zeros around the last dimensions of x."""
    if not any(before) and not any(after):
        return x
    # torch counts from the last dimension
    widths = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    if len(before) == 2:
        left, right, top, bottom = widths
        return builder.layer(nn.ZeroPad2d((left, right, top, bottom)), x)
    return builder.call(F.pad, x, tuple(widths))


@translates("Conv")
def _conv(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    weight, bias = _floats(node.constant(1)), node.optional_constant(2)
    rank = weight.ndim - 2
    if rank not in (1, 2):
        raise node.unsupported(f"a convolution over {rank} dimensions")
    kernel = list(weight.shape[2:])
    node.require("kernel_shape", kernel, kernel)
    strides = list(node.attribute("strides", [1] * rank))
    dilations = list(node.attribute("dilations", [1] * rank))
    before, after = _padding(node, builder.shape(x)[2:], kernel, strides, dilations)
    if before != after:
        x = _pad_zeros(builder, x, before, after)
        before = [0] * rank
    groups = node.attribute("group", 1)
    kind: Any = nn.Conv2d if rank == 2 else nn.Conv1d
    layer = kind(
        weight.shape[1] * groups,
        weight.shape[0],
        tuple(kernel),
        tuple(strides),
        tuple(before),
        tuple(dilations),
        groups,
        bias is not None,
        device="meta",
    )
    return builder.layer(_with(layer, weight=weight, bias=None if bias is None else _floats(bias)), x)


@translates("MaxPool", "AveragePool")
def _pool(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    kernel: Any = tuple(node.attribute("kernel_shape", ()))
    if len(kernel) != 2 or len(builder.shape(x)) != 4:
        raise node.unsupported("pooling of anything but two-dimensional maps")
    if len(node.proto.output) > 1:
        raise node.unsupported("the second output")
    strides: Any = tuple(node.attribute("strides", (1, 1)))
    dilations: Any = tuple(node.attribute("dilations", (1, 1)))
    ceil = bool(node.attribute("ceil_mode", 0))
    before, after = _padding(node, builder.shape(x)[2:], kernel, strides, dilations)
    padding: Any = tuple(before)
    too_wide = before != after or any(2 * b > k for b, k in zip(before, kernel, strict=True))
    if node.operation == "MaxPool":
        node.require("storage_order", 0, 0)
        if too_wide:
            raise node.unsupported(f"padding {before} and {after}")
        return builder.layer(nn.MaxPool2d(kernel, strides, padding, dilations, ceil_mode=ceil), x)
    count_padding = bool(node.attribute("count_include_pad", 0))
    if dilations != (1, 1):
        raise node.unsupported(f"dilations = {dilations}")
    if too_wide:
        if not count_padding or ceil:
            raise node.unsupported(f"padding {before} and {after}")
        x = _pad_zeros(builder, x, before, after)
        padding = (0, 0)
    return builder.layer(nn.AvgPool2d(kernel, strides, padding, ceil, count_padding), x)


@translates("GlobalAveragePool")
def _global_average_pool(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    if len(builder.shape(x)) != 4:
        raise node.unsupported("pooling of anything but two-dimensional maps")
    return builder.layer(nn.AdaptiveAvgPool2d(1), x)


@translates("Pad")
def _pad(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    node.require("mode", "constant", "constant")
    x = node.value(0)
    rank = len(builder.shape(x))
    pads = node.integers("pads", 1) or []
    fill = node.optional_constant(2)
    value = float(node.attribute("value", 0.0) if fill is None else fill.item())
    axes = node.optional_constant(3)
    where = list(range(rank)) if axes is None else [int(a) % rank for a in axes.ravel()]
    if len(pads) != 2 * len(where) or min(pads, default=0) < 0:
        raise node.unsupported(f"pads = {pads}")
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(where):
        before[axis], after[axis] = pads[position], pads[position + len(where)]
    if before[0] or after[0]:
        raise node.unsupported("padding of the batch dimension")
    first = next((i for i in range(rank) if before[i] or after[i]), rank)
    if value == 0:
        first = rank - 2 if rank == 4 and first == rank - 1 else first
        return _pad_zeros(builder, x, before[first:], after[first:])
    widths = [n for pair in zip(reversed(before[first:]), reversed(after[first:]), strict=True) for n in pair]
    return builder.call(F.pad, x, tuple(widths), "constant", value) if widths else x


# Shapes


def _reshaped(builder: GraphBuilder, node: OnnxNode, x: fx.Node, shape: Sequence[int]) -> fx.Node:
    """x in another shape, for any batch size."""
    old, new = builder.shape(x), tuple(shape)
    if math.prod(old) != math.prod(new):
        raise node.unsupported(f"a change of shape from {old} to {new}")
    if not new or new[0] != builder.batch:
        raise node.unsupported(f"a change of shape from {old} to {new}, which does not keep the batch dimension,")
    if old == new:
        return x
    if len(new) == 2:
        return builder.layer(nn.Flatten(), x)
    return builder.method("reshape", x, -1, *new[1:])


@translates("Flatten")
def _flatten(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    old = builder.shape(x)
    axis = node.attribute("axis", 1)
    axis = axis + len(old) if axis < 0 else axis
    return _reshaped(builder, node, x, (math.prod(old[:axis]), math.prod(old[axis:])))


@translates("Reshape")
def _reshape(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    node.require("allowzero", 0, 0)
    x = node.value(0)
    old = builder.shape(x)
    new = node.integers("shape", 1) or []
    new = [old[i] if n == 0 else n for i, n in enumerate(new)]
    if new.count(-1) == 1:
        known = -math.prod(new)
        new = [math.prod(old) // known if n == -1 and known else n for n in new]
    return _reshaped(builder, node, x, new)


@translates("Squeeze")
def _squeeze(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    old = builder.shape(x)
    axes = node.integers("axes", 1)
    if axes is None:
        axes = [i for i, n in enumerate(old) if n == 1]
    axes = [a % len(old) for a in axes]
    if any(old[a] != 1 for a in axes):
        raise node.unsupported(f"axes {axes} of shape {old}")
    return _reshaped(builder, node, x, [n for i, n in enumerate(old) if i not in axes])


@translates("Unsqueeze")
def _unsqueeze(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    rest = list(builder.shape(x))
    axes = node.integers("axes", 1) or []
    rank = len(rest) + len(axes)
    places = {a % rank for a in axes}
    return _reshaped(builder, node, x, [1 if i in places else rest.pop(0) for i in range(rank)])


@translates("Transpose")
def _transpose(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    rank = len(builder.shape(x))
    order = list(node.attribute("perm", list(reversed(range(rank)))))
    if order[0] != 0:
        raise node.unsupported(f"the order {order}, which moves the batch dimension,")
    return x if order == list(range(rank)) else builder.method("permute", x, *order)


@translates("Concat")
def _concat(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    parts = [node.value(i) for i in range(len(node.inputs))]
    rank = len(builder.shape(parts[0]))
    axis = node.attribute("axis", 1) % rank
    if axis == 0:
        raise node.unsupported("concatenation along the batch dimension")
    return parts[0] if len(parts) == 1 else builder.call(torch.cat, parts, axis)


# Nothing to do


@translates("Identity")
def _identity(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    return node.value(0)


@translates("Dropout")
def _dropout(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """The identity, since the network is not trained while it is read."""
    node.attribute("ratio", 0.5)
    node.attribute("seed", 0)
    training = node.optional_constant(2)
    if training is not None and bool(training):
        raise node.unsupported("training mode")
    if len(node.proto.output) > 1 and node.proto.output[1]:
        raise node.unsupported("the second output")
    return node.value(0)
