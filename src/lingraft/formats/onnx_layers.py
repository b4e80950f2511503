"""How each operation of `lingraft.model.operations` with weights, and each activation, is written in ONNX.

Writers take the arguments of the operation after the shape of the result for a batch of two.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.formats.onnx_writer import OnnxWriter, Value, named
from lingraft.model.operations.weights import around, each, padding_of

Shape = Sequence[int]

#: name of an operation → its writer: (writer, shape of the result, arguments of the operation) → what it gives;
#: of an operation that gives several values, their shapes, and as many values
WRITERS: dict[str, Callable[..., Any]] = {}


def writes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For `@writes("linear")` before the writer of an operation of that name."""

    def register(write: Callable[..., Any]) -> Callable[..., Any]:
        WRITERS.update(dict.fromkeys(names, write))
        return write

    return register


def constant(value: Any) -> Tensor:
    """A tensor that an operation must be given as a constant."""
    if isinstance(value, Value):
        raise LingraftError("its weights depend on the input of the network. Use fixed ones.")
    return torch.as_tensor(value)


# Fully connected layers


class Affine(Value):
    """A fully connected layer of a (N, inputs) value, which a grafted site behind it may absorb."""

    def __init__(self, to: OnnxWriter, shape: Shape, source: Value, weight: Tensor, bias: Tensor | None):
        super().__init__(shape, lambda: write_gemm(to, scope, source, weight, bias))
        scope = to.scope
        self.source, self.weight, self.bias = source, weight, bias


def write_gemm(to: OnnxWriter, scope: str, source: Value, weight: Tensor, bias: Tensor | None) -> str:
    """Write source·weightᵀ + bias and give the name of the result."""
    name, outer = source.name, to.scope
    to.scope = scope
    tensors = [to.weight("weight", weight)] + ([] if bias is None else [to.weight("bias", bias)])
    result = to.node("Gemm", name, *tensors, transB=1)
    to.scope = outer
    return result


@writes("linear")
def _linear(to: OnnxWriter, shape: Shape, x: Value, weight: Tensor, bias: Tensor | None) -> Value:
    weight = constant(weight)
    if len(shape) == 2:
        return Affine(to, shape, x, weight, bias)
    product = to.node("MatMul", x.name, to.weight("weight", weight.T))
    if bias is not None:
        product = to.node("Add", product, to.weight("bias", bias))
    return named(shape, product)


@writes("matrix product")
def _product(to: OnnxWriter, shape: Shape, left: Any, right: Any) -> Value:
    if isinstance(left, Value) and isinstance(right, Value):
        return to.value(shape, "MatMul", left.name, right.name)
    if isinstance(left, Value):
        return to.value(shape, "MatMul", left.name, to.weight("weight", constant(right)))
    return to.value(shape, "MatMul", to.weight("weight", left), right.name)


# Convolution and batch norm


class Padded(Value):
    """A value with zeros around its maps, which a convolution behind it may absorb: (before, after) of each side."""

    def __init__(self, to: OnnxWriter, shape: Shape, source: Value, before: list[int], after: list[int]):
        super().__init__(shape, lambda: write_pad(to, source, before, after, 0.0))
        self.source, self.before, self.after = source, before, after


def write_pad(
    to: OnnxWriter, x: Value, before: Sequence[int], after: Sequence[int], fill: float, mode: str = "constant"
) -> str:
    """Write a value with a border around its last dimensions and give the name of the result."""
    rest = [0] * (len(x.shape) - len(before))
    pads = to.integers("pads", [*rest, *before, *rest, *after])
    return to.node("Pad", x.name, pads, to.weight("fill", torch.tensor(fill)), mode=mode)


@writes("convolution")
def _conv(
    to: OnnxWriter,
    shape: Shape,
    x: Value,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    padding_mode: str,
) -> Value:
    weight = constant(weight)
    kernel = list(weight.shape[2:])
    before, after = padding_of(padding, tuple(kernel), dilation)
    if padding_mode != "zeros" and any(before + after):
        sides = [n + b + a for n, b, a in zip(x.shape[2:], before, after, strict=True)]
        x = WRITERS["padding"](to, (*x.shape[:2], *sides), x, around(before, after), padding_mode, None)
        before, after = [0] * len(kernel), [0] * len(kernel)
    if isinstance(x, Padded) and len(x.before) == len(kernel):
        before = [a + b for a, b in zip(before, x.before, strict=True)]
        after = [a + b for a, b in zip(after, x.after, strict=True)]
        x = x.source
    name = x.name
    tensors = [to.weight("weight", weight)] + ([] if bias is None else [to.weight("bias", constant(bias))])
    return to.value(
        shape,
        "Conv",
        name,
        *tensors,
        kernel_shape=kernel,
        strides=list(each(stride, len(kernel))),
        dilations=list(each(dilation, len(kernel))),
        group=groups,
        pads=[*before, *after],
    )


@writes("transposed convolution")
def _conv_back(
    to: OnnxWriter,
    shape: Shape,
    x: Value,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Value:
    weight = constant(weight)
    rank = weight.dim() - 2
    name = x.name
    tensors = [to.weight("weight", weight)] + ([] if bias is None else [to.weight("bias", constant(bias))])
    return to.value(
        shape,
        "ConvTranspose",
        name,
        *tensors,
        kernel_shape=list(weight.shape[2:]),
        strides=list(each(stride, rank)),
        dilations=list(each(dilation, rank)),
        group=groups,
        pads=list(each(padding, rank)) * 2,
        output_padding=list(each(output_padding, rank)),
    )


@writes("batch norm")
def _batch_norm(
    to: OnnxWriter,
    shape: Shape,
    x: Value,
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Value:
    if mean is None or variance is None or training:
        raise LingraftError("batch norm without running statistics depends on the batch and cannot be exported.")
    tensors = {
        "weight": torch.ones_like(mean) if weight is None else weight,
        "bias": torch.zeros_like(mean) if bias is None else bias,
        "running_mean": mean,
        "running_var": variance,
    }
    names = [to.weight(name, constant(tensor)) for name, tensor in tensors.items()]
    return to.value(shape, "BatchNormalization", x.name, *names, epsilon=eps)
