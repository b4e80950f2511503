"""How each supported torch layer, function and tensor method is written in ONNX.

Writers of functions take the arguments of the torch function after the shape of the result for a batch of two.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.formats.onnx_writer import OnnxWriter, Value, named
from lingraft.model.activations import KNOWN

Shape = Sequence[int]

_FUNCTIONS: dict[str, Callable[..., Value]] = {}


def _writes(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    def register(write: Callable[..., Value]) -> Callable[..., Value]:
        for name in names:
            _FUNCTIONS[name] = write
        return write

    return register


def write_function(to: OnnxWriter, name: str, shape: Shape, args: Sequence[Any], kwargs: dict[str, Any]) -> Value:
    """Write the call of a torch function or tensor method, known by its name, with a result of this shape."""
    if name not in _FUNCTIONS:
        known = ", ".join(sorted([*_FUNCTIONS, *KNOWN]))
        raise LingraftError(f"{name}() cannot be written as ONNX. Write the model with these: {known}.")
    write = _FUNCTIONS[name]
    try:
        bound = inspect.signature(write).bind(to, shape, *args, **kwargs)
    except TypeError as error:
        raise LingraftError(f"{name}() with these arguments cannot be written as ONNX ({error}).") from error
    return write(*bound.args, **bound.kwargs)


def write_module(to: OnnxWriter, module: nn.Module, shape: Shape, x: Value) -> Value:
    """Write the call of a module."""
    for kind, write in _MODULES.items():
        if isinstance(module, kind):
            return write(to, shape, module, x)
    known = ", ".join(kind.__name__ for kind in (*_MODULES, *(m for record in KNOWN.values() for m in record.modules)))
    raise LingraftError(f"a {type(module).__name__} cannot be written as ONNX. Known: {known}.")


def _pair(value: Any) -> list[int]:
    """The two numbers that torch lets one write as one."""
    numbers = [value, value] if isinstance(value, int) else list(value)
    return numbers * 2 if len(numbers) == 1 else numbers


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


@_writes("linear")
def _linear(to: OnnxWriter, shape: Shape, x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
    if len(shape) == 2:
        return Affine(to, shape, x, weight, bias)
    product = to.node("MatMul", x.name, to.weight("weight", weight.T))
    if bias is not None:
        product = to.node("Add", product, to.weight("bias", bias))
    return named(shape, product)


# Convolution, pooling, padding


class Padded(Value):
    """A value with zeros around its maps, which a convolution behind it may absorb: (before, after) of each side."""

    def __init__(self, to: OnnxWriter, shape: Shape, source: Value, before: list[int], after: list[int]):
        super().__init__(shape, lambda: _write_pad(to, source, before, after, 0.0))
        self.source, self.before, self.after = source, before, after


def _write_pad(to: OnnxWriter, x: Value, before: Sequence[int], after: Sequence[int], fill: float) -> str:
    rest = [0] * (len(x.shape) - len(before))
    pads = to.integers("pads", [*rest, *before, *rest, *after])
    return to.node("Pad", x.name, pads, to.weight("fill", torch.tensor(fill)), mode="constant")


@_writes("pad")
def _pad(
    to: OnnxWriter, shape: Shape, x: Value, pad: Sequence[int], mode: str = "constant", value: Any = None
) -> Value:
    if mode != "constant" or min(pad, default=0) < 0:
        raise LingraftError(f"padding of mode {mode!r} by {list(pad)} cannot be written as ONNX.")
    if not any(pad):
        return x
    # torch counts from the last dimension
    before, after = list(pad[0::2])[::-1], list(pad[1::2])[::-1]
    if value:
        return named(shape, _write_pad(to, x, before, after, float(value)))
    return Padded(to, shape, x, before, after)


def _conv(to: OnnxWriter, shape: Shape, module: nn.Conv1d | nn.Conv2d, x: Value) -> Value:
    if module.padding_mode != "zeros":
        raise LingraftError(f"padding mode {module.padding_mode!r} of a convolution cannot be written as ONNX.")
    kernel, dilations = list(module.kernel_size), list(module.dilation)
    if module.padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
        before, after = [t // 2 for t in totals], [t - t // 2 for t in totals]
    else:
        before = [0] * len(kernel) if module.padding == "valid" else [int(p) for p in module.padding]
        after = before
    if isinstance(x, Padded) and len(x.before) == len(kernel):
        before = [a + b for a, b in zip(before, x.before, strict=True)]
        after = [a + b for a, b in zip(after, x.after, strict=True)]
        x = x.source
    name = x.name
    tensors = [to.weight("weight", module.weight)] + ([] if module.bias is None else [to.weight("bias", module.bias)])
    return to.value(
        shape,
        "Conv",
        name,
        *tensors,
        kernel_shape=kernel,
        strides=list(module.stride),
        dilations=dilations,
        group=module.groups,
        pads=[*before, *after],
    )


def _pool(
    to: OnnxWriter, shape: Shape, operation: str, x: Value, kernel_size: Any, stride: Any, padding: Any, **rest: Any
) -> Value:
    kernel, strides = _pair(kernel_size), _pair(stride or kernel_size)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": _pair(padding) * 2, **rest}
    return to.value(shape, operation, x.name, **attributes)


@_writes("max_pool2d")
def _max_pool(
    to: OnnxWriter,
    shape: Shape,
    x: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Value:
    rest = {"dilations": _pair(dilation), "ceil_mode": int(ceil_mode)}
    return _pool(to, shape, "MaxPool", x, kernel_size, stride, padding, **rest)


@_writes("avg_pool2d")
def _avg_pool(
    to: OnnxWriter,
    shape: Shape,
    x: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    if divisor_override is not None:
        raise LingraftError("average pooling with a divisor of its own cannot be written as ONNX.")
    rest = {"ceil_mode": int(ceil_mode), "count_include_pad": int(count_include_pad)}
    return _pool(to, shape, "AveragePool", x, kernel_size, stride, padding, **rest)


@_writes("adaptive_avg_pool2d")
def _adaptive_avg_pool(to: OnnxWriter, shape: Shape, x: Value, output_size: Any) -> Value:
    sizes, results = x.shape[-2:], shape[-2:]
    if tuple(results) == (1, 1):
        return to.value(shape, "GlobalAveragePool", x.name)
    if any(n % m for n, m in zip(sizes, results, strict=True)):
        raise LingraftError(f"adaptive pooling from {tuple(sizes)} to {tuple(results)} cannot be written as ONNX.")
    return _avg_pool(to, shape, x, [n // m for n, m in zip(sizes, results, strict=True)])


@_writes("mean")
def _mean(to: OnnxWriter, shape: Shape, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    axes = {d % len(x.shape) for d in ([dim] if isinstance(dim, int) else dim or [])}
    if len(x.shape) != 4 or axes != {2, 3}:
        raise LingraftError("only the mean over the two sides of images can be written as ONNX.")
    pooled = to.value((*x.shape[:2], 1, 1), "GlobalAveragePool", x.name)
    return pooled if keepdim else _reshape(to, shape, pooled)


# Arithmetic


def _operand(to: OnnxWriter, value: Value | Tensor | float) -> str:
    if isinstance(value, Value):
        return value.name
    return to.weight("constant", torch.as_tensor(value))


def _arithmetic(to: OnnxWriter, shape: Shape, operation: str, left: Any, right: Any) -> Any:
    if operation in ("Mul", "Div") and isinstance(right, Value) and (operation == "Div" or isinstance(left, Value)):
        raise LingraftError("a product of two values or a division by one cannot be verified and is not exported.")
    if isinstance(right, Value) and operation in ("Add", "Mul"):
        left, right = right, left
    # nothing to write for x + 0 and x · 1, as the normalization of a model may be
    neutral = 1.0 if operation in ("Mul", "Div") else 0.0
    unchanged = isinstance(left, Value) and not isinstance(right, Value) and left.shape == tuple(shape)
    if unchanged and bool((torch.as_tensor(right) == neutral).all()):
        return left
    return to.value(shape, operation, _operand(to, left), _operand(to, right))


@_writes("add", "add_", "iadd")
def _add(to: OnnxWriter, shape: Shape, left: Any, right: Any) -> Value:
    return _arithmetic(to, shape, "Add", left, right)


@_writes("sub", "sub_", "isub", "subtract")
def _sub(to: OnnxWriter, shape: Shape, left: Any, right: Any) -> Value:
    return _arithmetic(to, shape, "Sub", left, right)


@_writes("mul", "mul_", "imul", "multiply")
def _mul(to: OnnxWriter, shape: Shape, left: Any, right: Any) -> Value:
    return _arithmetic(to, shape, "Mul", left, right)


@_writes("div", "div_", "truediv", "itruediv", "divide", "true_divide")
def _div(to: OnnxWriter, shape: Shape, left: Any, right: Any) -> Value:
    return _arithmetic(to, shape, "Div", left, right)


@_writes("neg", "negative")
def _neg(to: OnnxWriter, shape: Shape, x: Value) -> Value:
    return _arithmetic(to, shape, "Mul", x, -1.0)


def _batch_norm(to: OnnxWriter, shape: Shape, module: nn.BatchNorm1d | nn.BatchNorm2d, x: Value) -> Value:
    if module.running_mean is None or module.running_var is None:
        raise LingraftError("batch norm without running statistics depends on the batch and cannot be exported.")
    ones, zeros = torch.ones(module.num_features), torch.zeros(module.num_features)
    tensors = {
        "weight": ones if module.weight is None else module.weight,
        "bias": zeros if module.bias is None else module.bias,
        "running_mean": module.running_mean,
        "running_var": module.running_var,
    }
    names = [to.weight(name, tensor) for name, tensor in tensors.items()]
    return to.value(shape, "BatchNormalization", x.name, *names, epsilon=module.eps)


# Shapes. What the arguments were does not matter: the shape of the result is known.


@_writes("reshape", "view", "squeeze", "unsqueeze", "unflatten", "flatten")
def _reshape(to: OnnxWriter, shape: Shape, x: Value, *sizes: Any, **named: Any) -> Value:
    if tuple(shape) == x.shape:
        return x
    if not shape or shape[0] != x.shape[0]:
        raise LingraftError(f"a change of shape from {x.shape} to {tuple(shape)} (for two images) mixes the images.")
    if len(shape) == 2:
        return to.value(shape, "Flatten", x.name, axis=1)
    return to.value(shape, "Reshape", x.name, to.integers("shape", [to.batch, *shape[1:]]))


@_writes("permute")
def _permute(to: OnnxWriter, shape: Shape, x: Value, *dims: Any) -> Value:
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order = [d % len(x.shape) for d in order]
    if order[0] != 0:
        raise LingraftError(f"the order {order} moves the batch dimension.")
    return to.value(shape, "Transpose", x.name, perm=order)


@_writes("transpose", "swapaxes")
def _transpose(to: OnnxWriter, shape: Shape, x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(x.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(to, shape, x, order)


@_writes("cat", "concat")
def _cat(to: OnnxWriter, shape: Shape, tensors: Sequence[Value], dim: int = 0) -> Value:
    if not all(isinstance(part, Value) for part in tensors):
        raise LingraftError("concatenation with a constant cannot be written as ONNX.")
    axis = dim % len(shape)
    if axis == 0:
        raise LingraftError("concatenation along the batch dimension cannot be written as ONNX.")
    return to.value(shape, "Concat", *[part.name for part in tensors], axis=axis)


# Nothing to do


@_writes("contiguous", "dropout", "clone", "detach", "float")
def _same(to: OnnxWriter, shape: Shape, x: Value, *args: Any, **kwargs: Any) -> Value:
    return x


_MODULES: dict[type[nn.Module], Callable[[OnnxWriter, Shape, Any, Value], Value]] = {
    nn.Linear: lambda to, shape, m, x: _linear(to, shape, x, m.weight, m.bias),
    nn.Conv2d: _conv,
    nn.Conv1d: _conv,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.MaxPool2d: lambda to, shape, m, x: _max_pool(
        to, shape, x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode
    ),
    nn.AvgPool2d: lambda to, shape, m, x: _avg_pool(
        to, shape, x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad, m.divisor_override
    ),
    nn.AdaptiveAvgPool2d: lambda to, shape, m, x: _adaptive_avg_pool(to, shape, x, m.output_size),
    nn.Flatten: lambda to, shape, m, x: _reshape(to, shape, x),
    nn.Unflatten: lambda to, shape, m, x: _reshape(to, shape, x),
    nn.ConstantPad2d: lambda to, shape, m, x: _pad(to, shape, x, m.padding, "constant", m.value),
    nn.ConstantPad1d: lambda to, shape, m, x: _pad(to, shape, x, m.padding, "constant", m.value),
    nn.Identity: lambda to, shape, m, x: x,
    nn.Dropout: lambda to, shape, m, x: x,
}
