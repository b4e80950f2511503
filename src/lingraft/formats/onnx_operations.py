"""How each supported ONNX operation is written in torch: layers, arithmetic and activations.

Those that look at windows are in `onnx_windows.py`, those that only move values in `onnx_moves.py`.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.formats import onnx_moves, onnx_windows
from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.onnx_activations import READERS, read_activation
from lingraft.formats.onnx_node import OnnxNode
from lingraft.formats.onnx_patterns import PARTS, product
from lingraft.formats.onnx_translators import TRANSLATORS, Translator, translates, with_tensors
from lingraft.model.activations import KNOWN, named_in_onnx
from lingraft.model.activations.square import SQUARE
from lingraft.model.operations import KNOWN as OPERATIONS

__all__ = ["Translator", "onnx_moves", "onnx_windows", "supported", "translate", "translates"]

TRANSLATORS.update({**READERS, **PARTS})


def supported() -> list[str]:
    """The operations that can be read."""
    return sorted({*TRANSLATORS, *(record.onnx for record in KNOWN.values() if record.onnx is not None)})


def translate(builder: GraphBuilder, node: OnnxNode) -> list[fx.Node]:
    """Write a node in torch: its outputs, or the first of them."""
    if node.operation not in TRANSLATORS and named_in_onnx(node.operation) is not None:
        return [read_activation(builder, node)]
    if node.operation not in TRANSLATORS:
        raise LingraftError(
            f"{node.title}: the operation {node.operation} is not supported. Supported: {', '.join(supported())}."
        )
    found = TRANSLATORS[node.operation](builder, node)
    return [builder.settled(value) for value in ([found] if isinstance(found, fx.Node) else found)]


# Fully connected layers


def _linear(builder: GraphBuilder, x: fx.Node, weight: Tensor, bias: Tensor | None) -> fx.Node:
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
    return builder.layer(with_tensors(layer, weight=weight.contiguous(), bias=bias), x)


@translates("Gemm")
def _gemm(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    node.require("transA", 0, 0)
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    weight = alpha * builder.tensor(node.constant(1))
    weight = weight if node.attribute("transB", 0) else weight.T
    bias = node.optional_constant(2)
    shift = None if bias is None else (beta * builder.tensor(bias)).broadcast_to(1, weight.shape[0])[0].clone()
    return _linear(builder, node.value(0), weight, shift)


@translates("MatMul")
def _matmul(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    left, right = node.optional(0), node.optional(1)
    if isinstance(left, fx.Node) and isinstance(right, np.ndarray):
        return _times_matrix(builder, node, left, right)
    if isinstance(right, fx.Node) and isinstance(left, np.ndarray) and left.ndim in (1, 2):
        # (A·X)ᵀ = Xᵀ·Aᵀ
        matrix = left.reshape(-1, left.shape[-1])
        shape = builder.file_shape(right)
        if len(shape) == 1:
            product = _linear(builder, right, builder.tensor(matrix), None)
        else:
            product = _linear(builder, _turned(builder, right), builder.tensor(matrix), None)
            product = _turned(builder, product)
        final = builder.file_shape(product)
        without = final[:-2] + final[-1:] if len(shape) > 1 else ()
        return product if left.ndim == 2 else builder.reshape(product, without)
    if isinstance(right, fx.Node) and isinstance(left, np.ndarray) and len(builder.file_shape(right)) > 1:
        product = _times_matrix(builder, node, _turned(builder, right), np.swapaxes(left, -1, -2))
        return _turned(builder, product)
    return _times_value(builder, node.value(0), node.value(1))


def _turned(builder: GraphBuilder, x: fx.Node) -> fx.Node:
    """x with its last two dimensions exchanged, of at least two in the file."""
    x = builder.bare(x) if len(builder.file_shape(x)) == 2 else x
    last = len(builder.shape(x)) - 1
    return builder.method("transpose", x, last - 1, last)


def _times_matrix(builder: GraphBuilder, node: OnnxNode, x: fx.Node, matrix: np.ndarray) -> fx.Node:
    """x times a constant: a vector, a matrix, or a stack of matrices for the parts of x."""
    if matrix.ndim == 1:
        product = _linear(builder, x, builder.tensor(matrix)[None], None)
        return builder.reshape(product, builder.file_shape(product)[:-1])
    stack, inputs, outputs = matrix.reshape(-1, *matrix.shape[-2:]), *matrix.shape[-2:]
    shape = builder.file_shape(x)
    if len(stack) == 1:
        product = _linear(builder, x, builder.tensor(stack[0]).T, None)
        missing = (1,) * (matrix.ndim - len(shape))
        return builder.reshape(product, (*missing, *builder.file_shape(product))) if missing else product
    if matrix.ndim > len(shape) or shape[:-2] != np.broadcast_shapes(shape[:-2], matrix.shape[:-2]):
        raise node.unsupported(f"a product of the shapes {shape} and {matrix.shape}")
    full = np.broadcast_to(matrix, (*shape[:-2], inputs, outputs)).reshape(-1, inputs, outputs)
    parts = builder.reshape(x, (1, len(full), *shape[-2:]))
    pieces = [
        _linear(builder, onnx_moves.taken(builder, parts, 1, [i]), builder.tensor(part).T, None)
        for i, part in enumerate(full)
    ]
    return builder.reshape(builder.call(torch.cat, pieces, 1), (*shape[:-1], outputs))


def _times_value(builder: GraphBuilder, left: fx.Node, right: fx.Node) -> fx.Node:
    """The product of two values; a vector is a row on the left, and a column on the right."""
    vectors = [len(builder.file_shape(value)) == 1 for value in (left, right)]
    left = builder.reshape(left, (1, *builder.file_shape(left))) if vectors[0] else left
    right = builder.reshape(right, (*builder.file_shape(right), 1)) if vectors[1] else right
    ranks = [len(builder.file_shape(value)) for value in (left, right)]
    if ranks[0] != ranks[1] or min(ranks) < 3 or builder.is_bare(left) or builder.is_bare(right):
        left, right = (builder.bare(value, max(ranks)) for value in (left, right))
    product = builder.call(torch.matmul, left, right)
    if not any(vectors):
        return product
    shape = builder.file_shape(product)
    rows, columns = shape[-2:]
    return builder.reshape(
        product, (*shape[:-2], *(() if vectors[0] else (rows,)), *(() if vectors[1] else (columns,)))
    )


# Arithmetic


_FUNCTIONS: dict[str, Any] = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div}


@translates("Add", "Sub", "Mul", "Div")
def _arithmetic(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    left, right = node.optional(0), node.optional(1)
    if node.operation == "Mul" and isinstance(left, fx.Node) and isinstance(right, fx.Node):
        known = product(builder, left, right)
        if known is not None:
            return known
    if left is None or right is None:
        raise node.unsupported("a missing input")
    return _combined(builder, node.operation, left, right)


def _combined(
    builder: GraphBuilder, operation: str, left: fx.Node | np.ndarray, right: fx.Node | np.ndarray
) -> fx.Node:
    """Two values, or a value and a constant, added, subtracted, multiplied or divided."""
    function = _FUNCTIONS[operation]
    if isinstance(left, fx.Node) and isinstance(right, fx.Node):
        ranks = [len(builder.file_shape(value)) for value in (left, right)]
        if ranks[0] != ranks[1] or builder.is_bare(left) != builder.is_bare(right):
            left, right = (builder.bare(value, max(ranks)) for value in (left, right))
        return builder.call(function, left, right)
    x, array = (left, right) if isinstance(left, fx.Node) else (right, left)
    assert isinstance(x, fx.Node)
    assert isinstance(array, np.ndarray)
    rank = len(builder.file_shape(x))
    if array.ndim > rank or (array.ndim == rank and array.shape[0] != 1 and not builder.is_bare(x)):
        x = builder.bare(x, array.ndim)
    if isinstance(left, fx.Node) or operation in ("Add", "Mul"):
        return builder.call(function, x, builder.constant(array))
    return builder.call(function, builder.constant(array), x)


@translates("Sum", "Mean", "Max", "Min")
def _several(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """Of any number of values and constants; max(a, b) = b + relu(a − b), min(a, b) = a − relu(a − b)."""
    values = [value for value in node.inputs if isinstance(value, fx.Node)]
    total = values[0]
    others: list[fx.Node | np.ndarray] = [*values[1:], *(v for v in node.inputs if isinstance(v, np.ndarray))]
    for other in others:
        if node.operation in ("Sum", "Mean"):
            total = _combined(builder, "Add", total, other)
            continue
        above = builder.layer(nn.ReLU(), _combined(builder, "Sub", total, other))
        if node.operation == "Max":
            total = _combined(builder, "Add", above, other)
        else:
            total = _combined(builder, "Sub", total, above)
    if node.operation == "Mean":
        return builder.call(torch.div, total, builder.constant(np.array(len(node.inputs))))
    return total


@translates("Neg")
def _negative(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    return builder.call(torch.neg, node.value(0))


@translates(*(record.onnx[0] for record in OPERATIONS.values() if record.bend not in (None, SQUARE)))
def _bend(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    (function,) = (r.calls[0] for r in OPERATIONS.values() if r.bend is not None and r.onnx == (node.operation,))
    return builder.call(function, node.value(0))


@translates("Pow")
def _power(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x, exponents = node.value(0), np.unique(node.constant(1))
    rank = node.constant(1).ndim
    if len(exponents) != 1 or rank > len(builder.file_shape(x)):
        raise node.unsupported(f"exponents of shape {node.constant(1).shape}")
    exponent = float(exponents[0])
    if exponent == 1:
        return x
    return builder.call(torch.square, x) if exponent == 2 else builder.call(torch.pow, x, exponent)


@translates("ReduceMean", "ReduceSum")
def _reduce(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    shape = builder.file_shape(x)
    axes, keep = node.integers("axes", 1), bool(node.attribute("keepdims", 1))
    if node.attribute("noop_with_empty_axes", 0) and not axes:
        return x
    chosen = sorted({onnx_moves.axis_of(node, a, shape) for a in axes or range(len(shape))})
    final = tuple(1 if i in chosen else n for i, n in enumerate(shape) if keep or i not in chosen)
    if node.operation == "ReduceMean" and len(shape) == 4 and chosen == [2, 3] and not builder.is_bare(x):
        return builder.reshape(builder.layer(nn.AdaptiveAvgPool2d(1), x), final)
    if 0 in chosen:
        if math.prod(shape[i] for i in chosen) == 1:
            return builder.reshape(x, final)
        x = builder.bare(x)
    function: Any = torch.mean if node.operation == "ReduceMean" else torch.sum
    dimensions = [i + builder.is_bare(x) for i in chosen]
    return builder.call(function, x, dimensions, keep) if dimensions else x


@translates("LayerNormalization")
def _layer_norm(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """Values less their mean, divided by their deviation, over the last axes; then a scale and a shift."""
    if len(node.proto.output) > 1:
        raise node.unsupported("the second output")
    node.attribute("stash_type", 1)  # the precision in which it is computed
    x = node.value(0)
    shape = builder.file_shape(x)
    first = onnx_moves.axis_of(node, node.attribute("axis", -1), shape)
    if not first and not builder.is_bare(x):
        x = builder.bare(x)
    axes = [i + builder.is_bare(x) for i in range(first, len(shape))]
    x = builder.call(torch.sub, x, builder.call(torch.mean, x, axes, True))
    variance = builder.call(torch.mean, builder.call(torch.square, x), axes, True)
    least = builder.constant(np.array(node.attribute("epsilon", 1e-5), np.float32))
    x = builder.call(torch.div, x, builder.call(torch.sqrt, builder.call(torch.add, variance, least)))
    for operation, number in (("Mul", 1), ("Add", 2)):
        if number == 1 or node.optional(2) is not None:
            x = _combined(builder, operation, x, node.constant(number))
    return x


@translates("BatchNormalization")
def _batch_norm(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    node.require("training_mode", 0, 0)
    node.require("spatial", 1, 1)
    node.require("is_test", 1, 1)
    node.attribute("momentum", 0.9)  # matters in training only
    if len(node.proto.output) > 1:  # which makes it training in operator sets before 14
        raise node.unsupported("the second output")
    x = node.value(0)
    rank = len(builder.file_shape(x))
    if rank not in (2, 3, 4) or builder.is_bare(x):
        raise node.unsupported(f"a value of shape {builder.file_shape(x)}")
    kind = nn.BatchNorm2d if rank == 4 else nn.BatchNorm1d
    scale, shift, mean, variance = (builder.tensor(node.constant(i)) for i in range(1, 5))
    layer = kind(len(scale), eps=node.attribute("epsilon", 1e-5), device="meta")
    with_tensors(layer, weight=scale, bias=shift, running_mean=mean, running_var=variance)
    layer.num_batches_tracked = torch.tensor(0)
    return builder.layer(layer, x)


# Activations


@translates("Softmax", "LogSoftmax")
def _softmax(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    shape = builder.file_shape(x)
    axis = onnx_moves.axis_of(node, node.attribute("axis", -1 if node.opset >= 13 else 1), shape)
    if node.opset < 13 and math.prod(shape[axis:]) != shape[axis]:  # over all dimensions from there on
        x = builder.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    if axis == 0 and not builder.is_bare(x):
        raise node.unsupported("the batch dimension as axis")
    kind = nn.Softmax if node.operation == "Softmax" else nn.LogSoftmax
    found = builder.layer(kind(axis + builder.is_bare(x)), x)
    return found if builder.file_shape(found) == shape else builder.reshape(found, shape)


# Nothing to do


@translates("Identity")
def _identity(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    return node.value(0)


@translates("Cast")
def _cast(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """To single or double precision: the network is one of real numbers."""
    node.require("to", 0, 1, 11)
    node.attribute("saturate", 1)  # about another type
    return node.value(0)


@translates("Dropout")
def _dropout(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """The identity, since the network is not trained while it is read."""
    node.attribute("ratio", 0.5)
    node.attribute("seed", 0)
    training = node.optional_constant(2)
    if training is not None and bool(training):
        raise node.unsupported("training mode")
    return node.value(0)
