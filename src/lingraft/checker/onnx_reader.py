"""From an ONNX file to a network. Only what is listed here is supported; all else is refused."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lingraft.checker.constants import (
    Attributes,
    Folder,
    axis_of,
    integers,
    new_shape,
    order_of,
    squeezed,
    take,
    unsqueezed,
)
from lingraft.checker.network import MAX_ALL_VALUES, Builder, Network, Value, exact_product, exact_sum, inner
from lingraft.checker.nodes import Convolution, Dense, Gather, Input, Scale
from lingraft.checker.operations import FIRST_SET, LAST_SET, require_known
from lingraft.checker.protobuf import OnnxGraph, OnnxNode, read_graph
from lingraft.checker.regular_file import read_regular
from lingraft.checker.rounding import UNIT, Array
from lingraft.checker.weight_files import WeightFiles
from lingraft.errors import LingraftError

#: Larger files, and those with more nodes, are refused.
MAX_BYTES, MAX_NODES = 1 << 30, 1 << 14

#: Numbers that may be computed from constants, beside as many as the file has bytes.
ROOM = 1 << 20

#: TensorProto.DataType of the images that networks take.
IMAGES: dict[int, type] = {1: np.float32, 11: np.float64}


def load_network(path: str | Path) -> Network:
    """Read an ONNX file; anything that is not understood is a LingraftError."""
    return network_of(read_network(path), str(path), weights_beside(path))


def read_network(path: str | Path) -> bytes:
    """The content of an ONNX file."""
    try:
        return read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LingraftError(f"cannot read {path}: {reason}. Check the path of the ONNX file.") from error


def weights_beside(path: str | Path) -> WeightFiles:
    """Files with weights of an ONNX file."""
    return WeightFiles(Path(path).parent, MAX_BYTES)


def network_of(data: bytes, name: str, beside: WeightFiles | None = None) -> Network:
    """The network in the content of an ONNX file, and of the files `beside` it; `name` is for messages."""
    beside = WeightFiles(Path(), 0) if beside is None else beside
    try:
        with np.errstate(all="ignore"):  # what overflows is found to be too large, here or by its bounds
            graph = read_graph(data, beside)
            size = len(data) + sum(map(len, beside.contents.values()))
            return _Reader(graph, size).network(beside.sha256(data))
    except LingraftError as error:
        raise LingraftError(f"{name} cannot be checked: {str(error)[:1000].removesuffix('.')}.") from error
    except MemoryError as error:
        raise LingraftError(f"{name} cannot be checked: there is not enough memory.") from error
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        raise LingraftError(
            f"{name} cannot be checked: reading it failed ({what}), which is a mistake in lingraft; please report it."
        ) from error


class _Reader(Builder):
    """One pass over the graph; `values` holds what each name stands for: an array, or a Value."""

    def __init__(self, graph: OnnxGraph, size: int):
        super().__init__([], 0)
        if not FIRST_SET <= graph.version <= LAST_SET:
            raise LingraftError(f"operator set {graph.version} is not one of {FIRST_SET} to {LAST_SET}")
        if len(graph.nodes) > MAX_NODES:
            raise LingraftError(f"there are more than {MAX_NODES:,} nodes")
        self.graph = graph
        self.folder = Folder(graph.version, size + ROOM)
        self.values: dict[str, Any] = dict(graph.constants)
        #: zero-padded maps: the node that was padded, and by how much (top, left, bottom, right)
        self.padded: dict[int, tuple[int, tuple[int, int, int, int]]] = {}
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(names) != 1 or len(graph.outputs) != 1:
            raise LingraftError("the network does not have one input and one output")
        kind, (batch, *shape) = graph.inputs[names[0]][0], graph.inputs[names[0]][1] or [0]
        if kind not in IMAGES:
            raise LingraftError(f"the input has element type {kind}, not float32 or float64")
        self.dtype: np.dtype[Any] = np.dtype(IMAGES[kind])
        if batch not in (0, 1) or not shape or min(shape) < 1:
            raise LingraftError(f"the input has the dimensions {[batch, *shape]}, not a batch of 1 and fixed others")
        self.shape = tuple(shape)
        self.values[names[0]] = self.plain(self.add(Input([], self.inner_shape([1, *shape]))), [1, *shape])
        #: names that stand for something, also if nothing may use it
        self.taken = set(self.values)
        self.uses = Counter([*graph.outputs, *(name for node in graph.nodes for name in node.inputs)])
        for node in graph.nodes:
            self._read(node)

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

    def _read(self, node: OnnxNode) -> None:
        try:
            result = self._result(node)
        except LingraftError as error:
            raise LingraftError(f"{node.operation} node {node.outputs[:1]}: {error}") from error
        except (ValueError, IndexError, TypeError, AttributeError, KeyError, ArithmeticError) as error:
            raise LingraftError(f"{node.operation} node {node.outputs[:1]} is damaged: {error}") from error
        if isinstance(result, Value) and self.uses[node.outputs[0]] > 1:
            self.node_of(result)  # one site for each activation, whatever uses it
        self.values[node.outputs[0]] = result

    def _result(self, node: OnnxNode) -> Any:
        if any(name and name not in self.values for name in node.inputs):
            raise LingraftError("an input is not known")
        inputs = [self.values[name] if name else None for name in node.inputs]
        require_known(node, inputs, self.graph.version, self.dtype)
        named = [name for name in node.outputs if name]
        if not node.outputs[0] or len(set(named)) < len(named) or self.taken & set(named):
            raise LingraftError("its outputs have no name, or one that is there already")
        if any(self.uses[name] for name in named[1:]):
            raise LingraftError("its second output is used")
        self.taken.update(named)
        if not any(isinstance(value, Value) for value in inputs):
            return self.folder.fold(node.operation, inputs, node.attributes)
        return getattr(self, f"_on_{node.operation.lower()}")(node.attributes, *inputs)

    def _constant(self, array: np.ndarray, shape: Sequence[int]) -> Array:
        """A constant broadcast to a value of that shape, in the order used here."""
        self.spend(2 * math.prod(shape))
        if array.dtype != self.dtype or np.broadcast_shapes(array.shape, tuple(shape)) != tuple(shape):
            raise LingraftError(f"a constant of type {array.dtype} and shape {array.shape} with {list(shape)}")
        return np.ascontiguousarray(inner(np.broadcast_to(array.astype(np.float64), shape)[0]))

    # affine layers

    def _on_conv(self, at: Attributes, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
        if len(x.shape) != 4 or weight.ndim != 4:
            raise LingraftError("only convolutions of images are supported")
        out, per_group, *kernel = weight.shape
        groups, channels = take(at, "group", 1), x.shape[1]
        take(at, "kernel_shape", kernel, kernel)
        if groups < 1 or per_group * groups != channels or out % groups or not weight.size:
            raise LingraftError(f"{groups} groups of weights {list(weight.shape)} do not fit {channels} channels")
        if bias is not None and bias.shape != (out,):
            raise LingraftError(f"a bias of shape {bias.shape} for {out} channels")
        matrix = weight.transpose(0, 2, 3, 1).astype(np.float64).reshape(out, -1)
        shift = np.zeros(out) if bias is None else bias.astype(np.float64)
        stride, dilation = (take(at, name, [1, 1]) for name in ("strides", "dilations"))
        pads = self._pads(at, x, kernel, stride, dilation)
        return self._convolved(x, matrix, shift, kernel, stride, pads, dilation, groups)

    def _pads(
        self, at: Attributes, x: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
    ) -> tuple[int, int, int, int]:
        pads = take(at, "pads", [0, 0, 0, 0])
        mode = take(at, "auto_pad", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
        if len(stride) != 2 or len(dilation) != 2 or not all(1 <= n <= 1 << 16 for n in (*stride, *dilation)):
            raise LingraftError(f"strides {stride}, dilations {dilation}")
        if mode != "NOTSET" and any(pads):
            raise LingraftError(f"padding {pads} as well as {mode}")
        if mode.startswith("SAME"):
            # where the stride is larger than the kernel, the standard and runtimes differ in what they cut away
            total = [(-(-n // s) - 1) * s + k - n for n, s, k in zip(x.shape[2:], stride, kernel, strict=True)]
            if min(total) < 0 or max(dilation) > 1:
                raise LingraftError(f"{mode} with a stride larger than the kernel, or with dilations")
            small, large = [t // 2 for t in total], [t - t // 2 for t in total]
            pads = small + large if mode == "SAME_UPPER" else large + small
        if len(pads) != 4 or not all(0 <= n <= 1 << 16 for n in pads):
            raise LingraftError(f"padding {pads}")
        top, left, bottom, right = pads
        return top, left, bottom, right

    def _convolved(
        self,
        x: Value,
        matrix: Array,
        bias: Array,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: tuple[int, int, int, int],
        dilation: Sequence[int],
        groups: int,
    ) -> Value:
        """`matrix` is (out, kh·kw·in/groups)."""
        source = self.node_of(x)
        if source in self.padded:  # zeros before a convolution are its own padding
            source, extra = self.padded[source]
            padding = tuple(a + b for a, b in zip(padding, extra, strict=True))  # type: ignore[assignment]
        height, width, channels = old = self.nodes[source].shape
        (kh, kw), (sy, sx), (dy, dx) = kernel, stride, dilation
        sides = [
            (n + padding[i] + padding[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i, n in enumerate((height, width))
        ]
        if min(sides) < 1:
            raise LingraftError("the kernel is larger than the image")
        shape = [1, len(bias), *sides]
        padded = (height + padding[0] + padding[2]) * (width + padding[1] + padding[3]) * channels
        if max(padded, math.prod(sides) * kh * kw * channels) > MAX_ALL_VALUES:
            raise LingraftError("a convolution whose windows have too many numbers in all")
        node = Convolution(
            [source], self.inner_shape(shape), old, matrix, bias, (kh, kw), (sy, sx), padding, (dy, dx), groups
        )
        return self.plain(self.add(node), shape)

    def _on_gemm(self, at: Attributes, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
        take(at, "transA", 0, 0)
        alpha, beta = take(at, "alpha", 1.0), take(at, "beta", 1.0)
        if self.dtype != np.float32 and (alpha, beta) != (1, 1):  # products of float32 numbers are exact
            raise LingraftError("alpha and beta with float64 weights")
        weight = weight if take(at, "transB", 0, 0, 1) else weight.T
        shift = np.zeros(1) if bias is None else beta * bias.astype(np.float64)
        return self._dense(x, alpha * weight.astype(np.float64), shift)

    def _on_matmul(self, at: Attributes, x: Value, weight: np.ndarray) -> Value:
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
        epsilon = take(at, "epsilon", float(np.float32(1e-5)))  # (the momentum matters in training only)
        if len(x.shape) < 2 or any(part.shape != (x.shape[1],) for part in given):
            raise LingraftError("statistics that are not one number a channel")
        view = (1, -1) + (1,) * (len(x.shape) - 2)
        scale, shift, mean, variance = (self._constant(part.reshape(view), x.shape) for part in given)
        if not (variance >= 0).all() or not (variance + epsilon > 0).all():
            raise LingraftError("a variance that is not positive")
        weight = scale / np.sqrt(variance + epsilon)  # three roundings, of which the first is halved
        bias = shift - mean * weight
        if not _moderate(scale, weight):
            raise LingraftError("weights that are too small to be computed with a known error")
        # what is below 1e-290 may have underflowed
        below = np.where((mean != 0) & (weight != 0), 1e-290, 0.0)
        doubts = 4 * UNIT * np.abs(weight), 8 * UNIT * (np.abs(shift) + np.abs(mean * weight)) + below
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

    def _on_div(self, at: Attributes, x: Value, divisor: np.ndarray) -> Value:
        constant = self._constant(divisor, x.shape)
        if not constant.all() or not _moderate(np.ones(1), 1 / constant):
            raise LingraftError("a division by zero, or by a number so large that nothing is left")
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
        take(at, "auto_pad", "NOTSET", "NOTSET", "VALID")  # what counts as padding of SAME_… is not the same everywhere
        kernel, stride, pads, dilation = self._pool(at, x)
        take(at, "count_include_pad", 0, *((1,) if any(pads) else (0, 1)))
        return self._average(x, kernel, stride, pads, dilation)

    def _on_globalaveragepool(self, at: Attributes, x: Value) -> Value:
        if len(x.shape) != 4:
            raise LingraftError("only pooling of images is supported")
        return self._average(x, x.shape[2:], (1, 1), (0, 0, 0, 0), (1, 1))

    def _average(
        self,
        x: Value,
        kernel: Sequence[int],
        stride: Sequence[int],
        pads: tuple[int, int, int, int],
        dilation: Sequence[int],
    ) -> Value:
        channels, window = x.shape[1], math.prod(kernel)
        self.spend(channels * window)
        ones = np.ones((channels, window))
        total = self._convolved(x, ones, np.zeros(channels), kernel, stride, pads, dilation, channels)
        return self._rounded_scale(total, np.full(self.nodes[total.base].shape, 1 / window))

    def _pool(self, at: Attributes, x: Value) -> tuple[list[int], list[int], tuple[int, int, int, int], list[int]]:
        kernel, stride = take(at, "kernel_shape", []), take(at, "strides", [1, 1])
        dilation = take(at, "dilations", [1, 1])
        take(at, "ceil_mode", 0, 0)
        if len(kernel) != 2 or len(x.shape) != 4 or min(kernel) < 1:
            raise LingraftError("only pooling of images is supported")
        if self.node_of(x) in self.padded:  # onnxruntime makes it the padding of the pooling, where it is not 0
            raise LingraftError("pooling of an image with zeros around it, which runtimes do in different ways")
        pads = self._pads(at, x, kernel, stride, dilation)
        if any(pad >= kernel[i % 2] for i, pad in enumerate(pads)):
            raise LingraftError(f"padding {list(pads)} of windows {kernel}, of which some hold nothing else")
        return kernel, stride, pads, dilation

    def _on_maxpool(self, at: Attributes, x: Value) -> Value:
        """A tournament: neighbours in the list of the window's values are compared, round after round."""
        (kh, kw), stride, (top, left, bottom, right), (dy, dx) = self._pool(at, x)
        take(at, "storage_order", 0, 0)
        self.spend((x.shape[2] + top + bottom) * (x.shape[3] + left + right) * x.shape[1] * kh * kw)

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
        axis, rank = take(at, "axis", 1), len(x.shape)
        if not (-rank if self.graph.version >= 11 else 0) <= axis <= rank:
            raise LingraftError(f"axis {axis} of {rank} does not exist")
        return self._reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))

    def _on_reshape(self, at: Attributes, x: Value, *shape: Any) -> Value:
        wanted = integers({}, "the shape", shape, 0) or []
        return self._reshaped(x, new_shape(x.shape, wanted, bool(take(at, "allowzero", 0, 0, 1))))

    def _on_squeeze(self, at: Attributes, x: Value, *axes: Any) -> Value:
        return self._reshaped(x, squeezed(x.shape, integers(at, "axes", [x, *axes], 1)))

    def _on_unsqueeze(self, at: Attributes, x: Value, *axes: Any) -> Value:
        return self._reshaped(x, unsqueezed(x.shape, integers(at, "axes", [x, *axes], 1) or []))

    def _on_transpose(self, at: Attributes, x: Value) -> Value:
        order = order_of(at, len(x.shape))
        return self.moved(x, lambda numbers: numbers.transpose(order))

    def _on_concat(self, at: Attributes, *parts: Any) -> Value:
        if not all(isinstance(part, Value) for part in parts):
            raise LingraftError("a constant cannot be joined")
        if "axis" not in at:
            raise LingraftError("no axis")
        axis = axis_of(at["axis"], len(parts[0].shape))
        if len({(*part.shape[:axis], 0, *part.shape[axis + 1 :]) for part in parts}) > 1:
            raise LingraftError("the parts do not fit together")
        ends = np.cumsum([part.shape[axis] for part in parts]).tolist()
        shape = [*parts[0].shape[:axis], ends[-1], *parts[0].shape[axis + 1 :]]
        self.inner_shape(shape)
        pieces = []
        for part, end in zip(parts, ends, strict=True):

            def join(numbers: np.ndarray, last: int = end) -> np.ndarray:
                whole = np.full(shape, -1)
                whole[(slice(None),) * axis + (slice(last - numbers.shape[axis], last),)] = numbers
                return whole

            pieces.append(self.moved(part, join))
        return pieces[0] if len(pieces) == 1 else self.summed(pieces, [1.0] * len(pieces))

    def _on_pad(self, at: Attributes, x: Value, *rest: Any) -> Value:
        take(at, "mode", "constant", "constant")
        pads = integers(at, "pads", rest, 0) or []
        fill = rest[1] if len(rest) > 1 and rest[1] is not None else np.array(take(at, "value", 0.0))
        rank = len(x.shape)
        if fill.any() or len(pads) != 2 * rank or min(pads) < 0 or max(pads) > 1 << 16:
            raise LingraftError("only padding with zeros is supported")
        widths = list(zip(pads[:rank], pads[rank:], strict=True))
        self.inner_shape([n + sum(w) for n, w in zip(x.shape, widths, strict=True)])
        result = self.moved(x, lambda numbers: np.pad(numbers, widths, constant_values=-1))
        if rank == 4 and not any(widths[1]):
            (top, bottom), (left, right) = widths[2:]
            self.padded[result.base] = self.node_of(x), (top, left, bottom, right)
        return result

    def _on_shape(self, at: Attributes, x: Value) -> np.ndarray:
        return np.array(x.shape, dtype=np.int64)

    # nothing to do

    def _on_identity(self, at: Attributes, x: Value) -> Value:
        return x

    def _on_dropout(self, at: Attributes, x: Value, ratio: Any = None, training: Any = None) -> Value:
        if training is not None and (training.dtype != bool or training.any()):
            raise LingraftError("dropout in training mode")
        return x


def _moderate(before: Array, after: Array) -> bool:
    """Whether no quotient underflowed: it is 0 where the dividend is, else far from the smallest numbers."""
    return bool(((before == 0) | (np.abs(after) > 1e-290)).all() and np.isfinite(after).all())
