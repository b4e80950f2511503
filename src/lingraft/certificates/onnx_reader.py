"""From an ONNX file to a network. Only what is listed here is supported; all else is refused."""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lingraft.certificates.constants import Attributes, fold, integers, new_shape, squeezed, take, unsqueezed
from lingraft.certificates.network import MAX_VALUES, Builder, Network, Value, exact_product, exact_sum, inner
from lingraft.certificates.nodes import Convolution, Dense, Gather, Input, Scale
from lingraft.certificates.protobuf import OnnxGraph, OnnxNode, read_graph
from lingraft.certificates.rounding import UNIT, Array
from lingraft.errors import LingraftError

#: Larger files are refused.
MAX_BYTES = 1 << 30


def load_network(path: str | Path) -> Network:
    """Read an ONNX file; anything that is not understood is a LingraftError."""
    try:
        size = Path(path).stat().st_size
        if size > MAX_BYTES:
            raise LingraftError(f"{path} has {size:,} bytes, more than {MAX_BYTES:,}.")
        data = Path(path).read_bytes()
    except OSError as error:
        raise LingraftError(f"cannot read {path}: {error.strerror}. Check the path of the ONNX file.") from error
    try:
        return _Reader(read_graph(data)).network(hashlib.sha256(data).hexdigest())
    except LingraftError as error:
        raise LingraftError(f"{path} cannot be checked: {str(error).removesuffix('.')}.") from error


class _Reader(Builder):
    """One pass over the graph; `values` holds what each name stands for: an array, or a Value."""

    def __init__(self, graph: OnnxGraph):
        super().__init__([], 0)
        self.graph = graph
        self.values: dict[str, Any] = dict(graph.constants)
        #: zero-padded maps: the node that was padded, and by how much (top, left, bottom, right)
        self.padded: dict[int, tuple[int, tuple[int, int, int, int]]] = {}
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(names) != 1 or len(graph.outputs) != 1:
            raise LingraftError("the network does not have one input and one output")
        batch, *shape = graph.inputs[names[0]] or [0]
        if batch not in (0, 1) or not shape or min(shape) < 1:
            raise LingraftError(f"the input has the dimensions {[batch, *shape]}, not a batch of 1 and fixed others")
        self.shape = tuple(shape)
        self.values[names[0]] = self.plain(self.add(Input([], self.inner_shape([1, *shape]))), [1, *shape])
        uses = Counter([*graph.outputs, *(name for node in graph.nodes for name in node.inputs)])
        for node in graph.nodes:
            self._read(node, uses)

    def network(self, sha256: str) -> Network:
        """The nodes that the output depends on."""
        output = self.values.get(self.graph.outputs[0])
        if not isinstance(output, Value):
            raise LingraftError("the output does not depend on the input")
        last = self.node_of(self._reshaped(output, (1, -1)))
        used = {0, last}
        for i in range(last, 0, -1):
            if i in used:
                used.update(self.nodes[i].inputs)
        number = {old: new for new, old in enumerate(sorted(used))}
        for i in used:
            self.nodes[i].inputs = [number[j] for j in self.nodes[i].inputs]
        return Network([self.nodes[i] for i in sorted(used)], self.shape, sha256, self.activations)

    # --- one node of the file -----------------------------------------------------------------------------------------

    def _read(self, node: OnnxNode, uses: Counter[str]) -> None:
        try:
            if any(name and name not in self.values for name in node.inputs):
                raise LingraftError("an input is not known")
            inputs = [self.values[name] if name else None for name in node.inputs]
            if not node.outputs or node.outputs[0] in self.values or any(uses[name] for name in node.outputs[1:]):
                raise LingraftError("its outputs are not supported")
            attributes = dict(node.attributes)
            result = self._result(node.operation, inputs, attributes)
            if attributes:
                raise LingraftError(f"attribute {next(iter(attributes))} is not supported")
        except LingraftError as error:
            raise LingraftError(f"{node.operation} node {node.outputs[:1]}: {error}") from error
        except (ValueError, IndexError, TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
            raise LingraftError(f"{node.operation} node {node.outputs[:1]} is damaged: {error}") from error
        if isinstance(result, Value) and uses[node.outputs[0]] > 1:
            self.node_of(result)  # one site for each activation, whatever uses it
        self.values[node.outputs[0]] = result

    def _result(self, operation: str, inputs: list[Any], attributes: Attributes) -> Any:
        if not any(isinstance(value, Value) for value in inputs):
            result = fold(operation, inputs, attributes)
        elif operation == "Shape":
            result = np.array(inputs[0].shape, dtype=np.int64)
        else:
            handler = getattr(self, f"_on_{operation.lower()}", None)
            result = None if handler is None else handler(attributes, *inputs)
        if result is None:
            raise LingraftError("not supported; certificates are about piecewise-linear networks of these layers: "
                                "convolution, linear, batch norm, pooling, ReLU, leaky ReLU, sums, shapes")  # fmt: skip
        return result

    def _constant(self, array: np.ndarray, shape: Sequence[int]) -> Array:
        """A constant broadcast to a value of that shape, in the order used here."""
        if array.dtype.kind != "f" or np.broadcast_shapes(array.shape, tuple(shape)) != tuple(shape):
            raise LingraftError(f"a constant of type {array.dtype} and shape {array.shape} with {list(shape)}")
        return np.ascontiguousarray(inner(np.broadcast_to(array.astype(np.float64), shape)[0]))

    # affine layers

    def _on_conv(self, at: Attributes, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
        if len(x.shape) != 4 or weight.ndim != 4:
            raise LingraftError("only convolutions of images are supported")
        out, per_group, *kernel = weight.shape
        groups, channels = take(at, "group", 1), x.shape[1]
        take(at, "kernel_shape", kernel, kernel)
        if groups < 1 or per_group * groups != channels or out % groups:
            raise LingraftError(f"{groups} groups do not fit {channels} channels")
        full = np.zeros((out, *kernel, channels))  # groups become zeros: one kind of convolution is enough
        for g in range(groups):
            o, i = slice(g * out // groups, (g + 1) * out // groups), slice(g * per_group, (g + 1) * per_group)
            full[o, :, :, i] = weight[o].transpose(0, 2, 3, 1)
        shift = np.zeros(out) if bias is None else bias.astype(np.float64).reshape(out)
        stride, dilation = (tuple(take(at, name, [1, 1])) for name in ("strides", "dilations"))
        return self._convolved(x, full, shift, stride, self._pads(at, x, kernel, stride, dilation), dilation)

    def _pads(
        self, at: Attributes, x: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
    ) -> tuple[int, int, int, int]:
        pads = take(at, "pads", [0, 0, 0, 0])
        mode = take(at, "auto_pad", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
        if mode != "NOTSET" and any(pads):
            raise LingraftError(f"padding {pads} as well as {mode}")
        if mode.startswith("SAME"):
            reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
            total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(x.shape[2:], stride, reach, strict=True)]
            small, large = [t // 2 for t in total], [t - t // 2 for t in total]
            pads = small + large if mode == "SAME_UPPER" else large + small
        if len(pads) != 4 or min(pads) < 0 or max(pads) > 1 << 16 or min(*stride, *dilation) < 1:
            raise LingraftError(f"padding {pads}, strides {list(stride)}, dilations {list(dilation)}")
        top, left, bottom, right = pads
        return top, left, bottom, right

    def _convolved(
        self, x: Value, weight: Array, bias: Array, stride: Any, padding: tuple[int, int, int, int], dilation: Any
    ) -> Value:
        """`weight` is (out, kh, kw, in)."""
        source = self.node_of(x)
        if source in self.padded:  # zeros before a convolution are its own padding
            source, extra = self.padded[source]
            padding = tuple(a + b for a, b in zip(padding, extra, strict=True))  # type: ignore[assignment]
        height, width, _ = old = self.nodes[source].shape
        out, kh, kw, _ = weight.shape
        sides = [
            (n + padding[i] + padding[i + 2] - dilation[i] * (k - 1) - 1) // stride[i] + 1
            for i, (n, k) in enumerate(((height, kh), (width, kw)))
        ]
        if min(sides) < 1:
            raise LingraftError("the kernel is larger than the image")
        shape = [1, out, *sides]
        matrix = np.ascontiguousarray(weight.reshape(out, -1))
        node = Convolution([source], self.inner_shape(shape), old, matrix, bias, (kh, kw), stride, padding, dilation)
        return self.plain(self.add(node), shape)

    def _on_gemm(self, at: Attributes, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
        take(at, "transA", 0, 0)
        alpha, beta = take(at, "alpha", 1.0), take(at, "beta", 1.0)  # float32 numbers: products with weights are exact
        weight = weight if take(at, "transB", 0, 0, 1) else weight.T
        if not isinstance(x, Value) or weight.dtype != np.float32 or (bias is not None and bias.dtype != np.float32):
            raise LingraftError("only products of a value and float32 weights are supported")
        shift = np.zeros(1) if bias is None else beta * bias.astype(np.float64)
        return self._dense(x, alpha * weight.astype(np.float64), shift)

    def _on_matmul(self, at: Attributes, x: Value, weight: np.ndarray) -> Value:
        if not isinstance(x, Value) or isinstance(weight, Value):
            raise LingraftError("only products of a value and constant weights are supported")
        return self._dense(x, weight.T.astype(np.float64), np.zeros(1))

    def _dense(self, x: Value, weight: Array, bias: Array) -> Value:
        if len(x.shape) != 2 or weight.ndim != 2 or weight.shape[1] != x.shape[1]:
            raise LingraftError(f"a product of shapes {x.shape} and {weight.shape}")
        source = self.node_of(x)
        flatten = self.nodes[source]
        if isinstance(flatten, Gather) and flatten.is_permutation:  # move the weights instead of the values
            moved = np.empty_like(weight)
            moved[:, flatten.index] = weight
            source, weight = flatten.inputs[0], moved
        bias = np.broadcast_to(bias, (1, len(weight)))[0].copy()
        node = Dense([source], (len(weight),), self.nodes[source].shape, np.ascontiguousarray(weight), bias)
        return self.plain(self.add(node), [1, len(weight)])

    def _on_batchnormalization(self, at: Attributes, x: Value, *given: np.ndarray) -> Value:
        take(at, "training_mode", 0, 0)
        take(at, "spatial", 1, 1)
        take(at, "is_test", 1, 1)
        take(at, "momentum", 0.9)  # matters in training only
        epsilon = take(at, "epsilon", float(np.float32(1e-5)))
        view = (1, -1) + (1,) * (len(x.shape) - 2)
        scale, shift, mean, variance = (self._constant(part.reshape(view), x.shape) for part in given)
        if not (variance >= 0).all() or not (variance + epsilon > 0).all():
            raise LingraftError("a variance that is not positive")
        weight = scale / np.sqrt(variance + epsilon)  # three roundings, of which the first is halved
        bias = shift - mean * weight
        doubts = 4 * UNIT * np.abs(weight), 8 * UNIT * (np.abs(shift) + np.abs(mean * weight))
        source = self.node_of(x)
        return self.plain(self.add(Scale([source], self.nodes[source].shape, weight, bias, *doubts)), x.shape)

    # arithmetic with constants, and sums of values

    def _on_add(self, at: Attributes, a: Any, b: Any) -> Value:
        return self._sum(a, b, 1.0)

    def _on_sub(self, at: Attributes, a: Any, b: Any) -> Value:
        return self._sum(a, b, -1.0)

    def _sum(self, a: Any, b: Any, sign: float) -> Value:
        """a + sign·b, of which one may be a constant."""
        if isinstance(a, Value) and isinstance(b, Value):
            if a.shape != b.shape:
                raise LingraftError(f"a sum of the shapes {a.shape} and {b.shape}")
            return self._joined(a, b, sign) or self.summed([a, b], [1.0, sign])
        if not isinstance(a, Value):
            a, b = self._times(b, np.full(1, sign)), a
            sign = 1.0
        constant = sign * self._constant(b, a.shape)
        if not exact_sum(a.shift, constant):
            self.node_of(a)
        return Value(a.shape, a.base, a.bend, a.slope, a.shift + constant, a.number)

    def _joined(self, a: Value, b: Value, sign: float) -> Value | None:
        """a ± b as one value of the same base, where that is exact."""
        pairs = [(a.bend, sign * b.bend), (a.slope, sign * b.slope), (a.shift, sign * b.shift)]
        two_bends = a.bend.any() and b.bend.any()
        if a.base != b.base or two_bends or not all(exact_sum(*pair) for pair in pairs):
            return None
        number = a.number if a.bend.any() else b.number
        bend, slope, shift = (x + y for x, y in pairs)
        return Value(a.shape, a.base, bend, slope, shift, number)

    def _on_mul(self, at: Attributes, a: Any, b: Any) -> Value:
        x, constant = (a, b) if isinstance(a, Value) else (b, a)
        if isinstance(constant, Value):
            raise LingraftError("a product of two values is not piecewise linear")
        return self._times(x, self._constant(constant, x.shape))

    def _on_neg(self, at: Attributes, x: Value) -> Value:
        return self._times(x, np.full(1, -1.0))

    def _times(self, x: Value, factor: Array) -> Value:
        if not all(exact_product(part, factor) for part in (x.bend, x.slope, x.shift)):
            self.node_of(x)
        return Value(x.shape, x.base, x.bend * factor, x.slope * factor, x.shift * factor, x.number)

    def _on_div(self, at: Attributes, x: Any, divisor: Any) -> Value:
        if not isinstance(x, Value) or isinstance(divisor, Value):
            raise LingraftError("division by a value is not piecewise linear")
        constant = self._constant(divisor, x.shape)
        if not constant.all():
            raise LingraftError("a division by zero")
        return self._rounded_scale(x, 1 / constant)

    def _rounded_scale(self, x: Value, weight: Array) -> Value:
        """x times a constant that was rounded once."""
        source = self.node_of(x)
        doubt = 2 * UNIT * np.abs(weight)
        node = Scale([source], self.nodes[source].shape, weight, np.zeros_like(weight), doubt)
        return self.plain(self.add(node), x.shape)

    # activations

    def _on_relu(self, at: Attributes, x: Value) -> Value:
        return self.bent(x, 0.0)

    def _on_leakyrelu(self, at: Attributes, x: Value) -> Value:
        return self.bent(x, take(at, "alpha", float(np.float32(0.01))))

    # pooling

    def _on_averagepool(self, at: Attributes, x: Value) -> Value:
        kernel, stride, pads, dilation = self._pool(at, x)
        take(at, "count_include_pad", 0, *((1,) if any(pads) else (0, 1)))
        return self._average(x, kernel, stride, pads, dilation)

    def _on_globalaveragepool(self, at: Attributes, x: Value) -> Value:
        return self._average(x, x.shape[2:], (1, 1), (0, 0, 0, 0), (1, 1))

    def _average(
        self, x: Value, kernel: Sequence[int], stride: Any, pads: tuple[int, int, int, int], dilation: Any
    ) -> Value:
        channels = x.shape[1]
        if channels * channels * math.prod(kernel) > MAX_VALUES:
            raise LingraftError("too many channels")
        ones = np.zeros((channels, *kernel, channels))
        ones[np.arange(channels), :, :, np.arange(channels)] = 1
        total = self._convolved(x, ones, np.zeros(channels), stride, pads, dilation)
        return self._rounded_scale(total, np.full(self.nodes[total.base].shape, 1 / math.prod(kernel)))

    def _pool(self, at: Attributes, x: Value) -> tuple[Any, Any, tuple[int, int, int, int], Any]:
        kernel, stride = take(at, "kernel_shape", []), take(at, "strides", [1, 1])
        dilation = take(at, "dilations", [1, 1])
        take(at, "ceil_mode", 0, 0)
        if len(kernel) != 2 or len(x.shape) != 4 or min(kernel) < 1:
            raise LingraftError("only pooling of images is supported")
        return kernel, tuple(stride), self._pads(at, x, kernel, stride, dilation), tuple(dilation)

    def _on_maxpool(self, at: Attributes, x: Value) -> Value:
        """A tournament: neighbours in the list of the window's values are compared, round after round."""
        (kh, kw), stride, (top, left, bottom, right), (dy, dx) = self._pool(at, x)
        take(at, "storage_order", 0, 0)

        def windows(numbers: np.ndarray) -> np.ndarray:
            padded = np.pad(numbers[0], ((0, 0), (top, bottom), (left, right)), constant_values=-1)
            seen = sliding_window_view(padded, (dy * (kh - 1) + 1, dx * (kw - 1) + 1), axis=(1, 2))
            seen = seen[:, :: stride[0], :: stride[1], ::dy, ::dx]
            seen = seen.reshape(*seen.shape[:3], -1)
            last = seen.max(3, keepdims=True)
            if (last < 0).any():
                raise LingraftError("a window that holds only padding")
            return np.where(seen < 0, last, seen)  # padding never wins: it repeats the last pixel of the window

        numbers = windows(np.arange(math.prod(x.shape)).reshape(x.shape))
        players = [self.moved(x, lambda _, i=i: numbers[None, ..., i]) for i in range(kh * kw)]  # type: ignore[misc]
        return self.largest(players)

    # shapes

    def _reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        return self.moved(x, lambda numbers: numbers.reshape(shape))

    def _on_flatten(self, at: Attributes, x: Value) -> Value:
        axis = take(at, "axis", 1)
        return self._reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))

    def _on_reshape(self, at: Attributes, x: Value, *shape: Any) -> Value:
        take(at, "allowzero", 0, 0)
        return self._reshaped(x, new_shape(x.shape, integers(at, "shape", [x, *shape], 1) or []))

    def _on_squeeze(self, at: Attributes, x: Value, *axes: Any) -> Value:
        return self._reshaped(x, squeezed(x.shape, integers(at, "axes", [x, *axes], 1)))

    def _on_unsqueeze(self, at: Attributes, x: Value, *axes: Any) -> Value:
        return self._reshaped(x, unsqueezed(x.shape, integers(at, "axes", [x, *axes], 1) or []))

    def _on_transpose(self, at: Attributes, x: Value) -> Value:
        order = take(at, "perm", None)
        return self.moved(x, lambda numbers: numbers.transpose(order))

    def _on_concat(self, at: Attributes, *parts: Any) -> Value:
        if not all(isinstance(part, Value) for part in parts):
            raise LingraftError("a constant cannot be joined")
        axis = take(at, "axis", None)
        pieces = []
        for i, part in enumerate(parts):

            def join(numbers: np.ndarray, place: int = i) -> np.ndarray:
                return np.concatenate(
                    [numbers if j == place else np.full(p.shape, -1) for j, p in enumerate(parts)], axis
                )

            pieces.append(self.moved(part, join))
        return pieces[0] if len(pieces) == 1 else self.summed(pieces, [1.0] * len(pieces))

    def _on_pad(self, at: Attributes, x: Value, *rest: Any) -> Value:
        take(at, "mode", "constant", "constant")
        pads = integers(at, "pads", [x, *rest], 1) or []
        fill = rest[1] if len(rest) > 1 and rest[1] is not None else np.array(take(at, "value", 0.0))
        rank = len(x.shape)
        if fill.any() or len(rest) > 2 or len(pads) != 2 * rank or min(pads) < 0 or max(pads) > 1 << 16:
            raise LingraftError("only padding with zeros is supported")
        widths = list(zip(pads[:rank], pads[rank:], strict=True))
        self.inner_shape([n + sum(w) for n, w in zip(x.shape, widths, strict=True)])
        result = self.moved(x, lambda numbers: np.pad(numbers, widths, constant_values=-1))
        if rank == 4 and not any(widths[1]):
            (top, bottom), (left, right) = widths[2:]
            self.padded[result.base] = self.node_of(x), (top, left, bottom, right)
        return result

    # nothing to do

    def _on_identity(self, at: Attributes, x: Value) -> Value:
        return x

    def _on_dropout(self, at: Attributes, x: Value, ratio: Any = None, training: Any = None) -> Value:
        take(at, "ratio", 0.5)
        take(at, "seed", 0)
        if training is not None and training.any():
            raise LingraftError("dropout in training mode")
        return x
