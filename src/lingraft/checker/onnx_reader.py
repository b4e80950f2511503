"""From an ONNX file to a network. Only what is listed here is supported; all else is refused."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lingraft.checker.constants import Attributes, Folder, axes_of, integers, take
from lingraft.checker.moves import Moves
from lingraft.checker.network import MAX_ALL_VALUES, Network, Value, exact_product, exact_sum, inner
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


class _Reader(Moves):
    """One pass over the graph; `values` holds what each name stands for: an array, or a Value."""

    def __init__(self, graph: OnnxGraph, size: int):
        super().__init__([], 0)
        if not FIRST_SET <= graph.version <= LAST_SET:
            raise LingraftError(f"operator set {graph.version} is not one of {FIRST_SET} to {LAST_SET}")
        if len(graph.nodes) > MAX_NODES:
            raise LingraftError(f"there are more than {MAX_NODES:,} nodes")
        self.graph, self.version = graph, graph.version
        self.folder = Folder(graph.version, size + ROOM)
        self.values: dict[str, Any] = dict(graph.constants)
        self.padded = {}
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(names) != 1 or len(graph.outputs) != 1:
            raise LingraftError("the network does not have one input and one output")
        kind, (batch, *shape) = graph.inputs[names[0]][0], graph.inputs[names[0]][1] or [0]
        if kind not in IMAGES:
            raise LingraftError(f"the input has element type {kind}, not float32 or float64")
        self.dtype = np.dtype(IMAGES[kind])
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
        for name, value in zip(node.outputs, result if isinstance(result, list) else [result], strict=False):
            if isinstance(value, Value) and self.uses[name] > 1:
                self.node_of(value)  # one site for each activation, whatever uses it
            self.values[name] = value

    def _result(self, node: OnnxNode) -> Any:
        if any(name and name not in self.values for name in node.inputs):
            raise LingraftError("an input is not known")
        inputs = [self.values[name] if name else None for name in node.inputs]
        require_known(node, inputs, self.graph.version, self.dtype)
        named = [name for name in node.outputs if name]
        if not node.outputs[0] or len(set(named)) < len(named) or self.taken & set(named):
            raise LingraftError("its outputs have no name, or one that is there already")
        several = {"outputs": len(node.outputs)} if node.operation == "Split" else {}
        if not several and any(self.uses[name] for name in named[1:]):
            raise LingraftError("its second output is used")
        self.taken.update(named)
        if not any(isinstance(value, Value) for value in inputs):
            return self.folder.fold(node.operation, inputs, node.attributes)
        return getattr(self, f"_on_{node.operation.lower()}")(node.attributes, *inputs, **several)

    def _constant(self, array: np.ndarray, shape: Sequence[int]) -> Array:
        """A constant broadcast to a value of that shape, in the order used here."""
        self.spend(2 * math.prod(shape))
        if array.dtype != self.dtype or np.broadcast_shapes(array.shape, tuple(shape)) != tuple(shape):
            raise LingraftError(f"a constant of type {array.dtype} and shape {array.shape} with {list(shape)}")
        return np.ascontiguousarray(inner(np.broadcast_to(array.astype(np.float64), shape)[0]))

    # affine layers

    def _on_conv(self, at: Attributes, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
        if len(x.shape) == weight.ndim == 3:
            return self._upright(self._on_conv, at, x, weight[..., None], bias)
        if len(x.shape) != 4 or weight.ndim != 4:
            raise LingraftError("only convolutions of images and sequences are supported")
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

    def _upright(self, handler: Callable[..., Value], at: Attributes, x: Value, *weights: Any) -> Value:
        """What `handler` makes of a sequence (1, C, L), as an image of which every row has one pixel."""
        at = dict(at)
        for name, single in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
            if name in at:
                at[name] = [*at[name], single]
        if "pads" in at:
            if len(at["pads"]) != 2:
                raise LingraftError(f"padding {at['pads']} of a sequence")
            at["pads"] = [at["pads"][0], 0, at["pads"][1], 0]
        result = handler(at, self._reshaped(x, (*x.shape, 1)), *weights)
        return self._reshaped(result, result.shape[:3])

    def _on_convtranspose(self, at: Attributes, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
        """A convolution of the values with zeros between and around them, by the kernels turned around."""
        if len(x.shape) == weight.ndim == 3:
            return self._upright(self._on_convtranspose, at, x, weight[..., None], bias)
        if len(x.shape) != 4 or weight.ndim != 4:
            raise LingraftError("only convolutions of images and sequences are supported")
        channels, out, *kernel = weight.shape
        groups = take(at, "group", 1)
        take(at, "kernel_shape", kernel, kernel)
        take(at, "auto_pad", "NOTSET", "NOTSET")
        if groups < 1 or channels != x.shape[1] or channels % groups or not weight.size:
            raise LingraftError(f"{groups} groups of weights {list(weight.shape)} do not fit {x.shape[1]} channels")
        if bias is not None and bias.shape != (out * groups,):
            raise LingraftError(f"a bias of shape {bias.shape} for {out * groups} channels")
        stride, dilation = (take(at, name, [1, 1]) for name in ("strides", "dilations"))
        pads, more = self._pads(at, x, kernel, stride, dilation), take(at, "output_padding", [0, 0])
        if len(more) != 2 or not all(0 <= n < max(s, d) for n, s, d in zip(more, stride, dilation, strict=True)):
            raise LingraftError(f"output_padding {more}")
        reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        before = [r - p for r, p in zip(reach, pads[:2], strict=True)]
        after = [r - p + m for r, p, m in zip(reach, pads[2:], more, strict=True)]
        spread = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True)]
        around = [max(0, n) for n in (*before, *after)]
        self.inner_shape([1, channels, *(n + a + b for n, a, b in zip(spread, around[:2], around[2:], strict=True))])
        if min(n + a + b for n, a, b in zip(spread, before, after, strict=True)) < 1:
            raise LingraftError("padding that leaves nothing")

        def apart(numbers: np.ndarray) -> np.ndarray:
            whole = np.full((1, channels, *spread), -1)
            whole[:, :, :: stride[0], :: stride[1]] = numbers
            widths = [(0, 0), (0, 0), (around[0], around[2]), (around[1], around[3])]
            cut = [slice(max(0, -a), b if b < 0 else None) for a, b in zip(before, after, strict=True)]
            return np.pad(whole, widths, constant_values=-1)[:, :, cut[0], cut[1]]

        turned = weight.reshape(groups, channels // groups, out, *kernel)[..., ::-1, ::-1].transpose(0, 2, 3, 4, 1)
        matrix = turned.astype(np.float64).reshape(groups * out, -1)
        shift = np.zeros(groups * out) if bias is None else bias.astype(np.float64)
        return self._convolved(self.moved(x, apart), matrix, shift, kernel, (1, 1), (0, 0, 0, 0), dilation, groups)

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
        return self.shifted(a, b, sign)

    def shifted(self, x: Value, constant: np.ndarray, sign: float = 1.0) -> Value:
        shift = sign * self._constant(constant, x.shape)
        if not exact_sum(x.shift, shift):
            self.node_of(x)
        return Value(x.shape, x.base, x.bend, x.slope, x.shift + shift, x.number)

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
            raise LingraftError("what is divided must depend on the input, and the divisor must not")
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

    def _on_prelu(self, at: Attributes, x: Value, slope: np.ndarray) -> Value:
        return self.bent(x, self._constant(slope, x.shape))

    def _on_abs(self, at: Attributes, x: Value) -> Value:
        return self.bent(x, -1.0)

    def _on_clip(self, at: Attributes, x: Value, low: Any = None, high: Any = None) -> Value:
        ends = [at.get(name) if end is None else end for name, end in (("min", low), ("max", high))]
        if any(end is not None and np.size(end) != 1 for end in ends):
            raise LingraftError("an end that is not a single number")
        return self._clipped(x, *(None if end is None else float(np.reshape(end, -1)[0]) for end in ends))

    def _on_hardsigmoid(self, at: Attributes, x: Value) -> Value:
        alpha, beta = take(at, "alpha", float(np.float32(0.2))), take(at, "beta", 0.5)
        if not alpha > 0:
            raise LingraftError(f"a slope of {alpha}")
        return self._clipped(self._shifted(self._times(x, np.full(1, alpha)), beta), 0.0, 1.0)

    def _clipped(self, x: Value, low: float | None, high: float | None) -> Value:
        """y = low + relu(x − low), then high − relu(high − y); one end may be missing. Each ReLU is an activation."""
        if low is not None and high is not None and not low < high:
            raise LingraftError(f"a range from {low} to {high}")
        if low is not None:
            x = self._shifted(self.bent(self._shifted(x, -low), 0.0), low)
        if high is None:
            return x
        over = self.bent(self._shifted(self._times(x, np.full(1, -1.0)), high), 0.0)
        return self._shifted(self._times(over, np.full(1, -1.0)), high)

    def _shifted(self, x: Value, by: float) -> Value:
        return self._sum(x, np.full((1,) * len(x.shape), by, self.dtype), 1.0)

    # pooling

    def _on_averagepool(self, at: Attributes, x: Value) -> Value:
        if len(x.shape) == 3:
            return self._upright(self._on_averagepool, at, x)
        take(at, "auto_pad", "NOTSET", "NOTSET", "VALID")  # what counts as padding of SAME_… is not the same everywhere
        kernel, stride, pads, dilation = self._pool(at, x)
        counts = bool(take(at, "count_include_pad", 0, 0, 1))
        if counts and take(at, "ceil_mode", 0):
            if any(take(at, "pads", [0])):
                raise LingraftError("padding that counts, with ceil_mode: runtimes do this in different ways")
            counts = False  # what a window has beyond the end is no padding
        if max(dilation) > 1 and any(pads) and not counts:
            raise LingraftError("padding that does not count, with dilations")
        return self._average(x, kernel, stride, pads, dilation, counts)

    def _on_globalaveragepool(self, at: Attributes, x: Value) -> Value:
        if len(x.shape) == 3:
            return self._upright(self._on_globalaveragepool, at, x)
        if len(x.shape) != 4:
            raise LingraftError("only pooling of images and sequences is supported")
        return self._average(x, x.shape[2:], (1, 1), (0, 0, 0, 0), (1, 1))

    def _average(
        self,
        x: Value,
        kernel: Sequence[int],
        stride: Sequence[int],
        pads: tuple[int, int, int, int],
        dilation: Sequence[int],
        counts: bool = True,
    ) -> Value:
        """Of the values in each window, and of the zeros around the image if these count."""
        total = self._total(x, kernel, stride, pads, dilation)
        shape = self.nodes[total.base].shape
        sizes = np.full(shape, float(math.prod(kernel)))
        if not counts:
            inside = []
            for axis, n in enumerate(x.shape[2:]):
                row = np.pad(np.ones(n), (pads[axis], pads[axis + 2]))
                seen = sliding_window_view(row, dilation[axis] * (kernel[axis] - 1) + 1)
                inside.append(seen[:: stride[axis], :: dilation[axis]].sum(1))
            sizes = np.broadcast_to((inside[0][:, None] * inside[1])[:, :, None], shape)
            if not sizes.all():
                raise LingraftError("a window that holds only padding")
        return self._rounded_scale(total, 1 / sizes)

    def _total(
        self,
        x: Value,
        kernel: Sequence[int],
        stride: Sequence[int],
        pads: tuple[int, int, int, int],
        dilation: Sequence[int],
    ) -> Value:
        """The sum of the values in each window, channel by channel."""
        channels, window = x.shape[1], math.prod(kernel)
        self.spend(channels * window)
        return self._convolved(
            x, np.ones((channels, window)), np.zeros(channels), kernel, stride, pads, dilation, channels
        )

    def _on_reducemean(self, at: Attributes, x: Value, *axes: Any) -> Value:
        return self._reduced(at, x, axes, True)

    def _on_reducesum(self, at: Attributes, x: Value, *axes: Any) -> Value:
        return self._reduced(at, x, axes, False)

    def _reduced(self, at: Attributes, x: Value, given: Sequence[Any], mean: bool) -> Value:
        """A sum over some axes: a window, one value wide, that is as high as all of them."""
        rank, keep = len(x.shape), take(at, "keepdims", 1, 0, 1)
        axes = integers(at, "axes", given, 0)
        if not axes:  # which means all axes, or none
            raise LingraftError("no axes")
        chosen = sorted(axes_of(axes, rank))
        if chosen[0] == 0:
            raise LingraftError("a sum over the batch dimension")
        kept = [i for i in range(1, rank) if i not in chosen]
        high = math.prod(x.shape[i] for i in chosen)
        order = (1, math.prod(x.shape[i] for i in kept), high, 1)
        upright = self.moved(x, lambda numbers: numbers.transpose(0, *kept, *chosen).reshape(order))
        total = self._total(upright, (high, 1), (1, 1), (0, 0, 0, 0), (1, 1))
        if mean:
            total = self._rounded_scale(total, np.full(self.nodes[self.node_of(total)].shape, 1 / high))
        final = [1 if i in chosen else n for i, n in enumerate(x.shape) if keep or i not in chosen]
        return self._reshaped(total, final)

    def _pool(self, at: Attributes, x: Value) -> tuple[list[int], list[int], tuple[int, int, int, int], list[int]]:
        kernel, stride = take(at, "kernel_shape", []), take(at, "strides", [1, 1])
        dilation = take(at, "dilations", [1, 1])
        if len(kernel) != 2 or len(x.shape) != 4 or min(kernel) < 1:
            raise LingraftError("only pooling of images and sequences is supported")
        if self.node_of(x) in self.padded:  # onnxruntime makes it the padding of the pooling, where it is not 0
            raise LingraftError("pooling of an image with zeros around it, which runtimes do in different ways")
        pads = self._pads(at, x, kernel, stride, dilation)
        if any(pad >= kernel[i % 2] for i, pad in enumerate(pads)):
            raise LingraftError(f"padding {list(pads)} of windows {kernel}, of which some hold nothing else")
        if take(at, "ceil_mode", 0, 0, 1):
            ends = [
                pads[i + 2]
                + _overhang(n + pads[i] + pads[i + 2], n + pads[i], dilation[i] * (kernel[i] - 1) + 1, stride[i])
                for i, n in enumerate(x.shape[2:])
            ]
            pads = (pads[0], pads[1], ends[0], ends[1])
        return kernel, stride, pads, dilation

    def _on_maxpool(self, at: Attributes, x: Value) -> Value:
        """A tournament: neighbours in the list of the window's values are compared, round after round."""
        if len(x.shape) == 3:
            return self._upright(self._on_maxpool, at, x)
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

    # nothing to do

    def _on_identity(self, at: Attributes, x: Value) -> Value:
        return x

    def _on_cast(self, at: Attributes, x: Value) -> Value:
        if np.dtype(IMAGES[take(at, "to", 0, *IMAGES)]) != self.dtype:
            raise LingraftError("a conversion of values to another type, which rounds")
        return x

    def _on_dropout(self, at: Attributes, x: Value, ratio: Any = None, training: Any = None) -> Value:
        if training is not None and (training.dtype != bool or training.any()):
            raise LingraftError("dropout in training mode")
        return x


def _overhang(size: int, start: int, reach: int, stride: int) -> int:
    """How far the last window of ceil_mode stands over the end; it must begin before `start`."""
    count = -(-(size - reach) // stride) + 1
    if (count - 1) * stride >= start:
        count -= 1
    return max(0, (count - 1) * stride + reach - size)


def _moderate(before: Array, after: Array) -> bool:
    """Whether no quotient underflowed: it is 0 where the dividend is, else far from the smallest numbers."""
    return bool(((before == 0) | (np.abs(after) > 1e-290)).all() and np.isfinite(after).all())
