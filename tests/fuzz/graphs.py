"""Random ONNX graphs, ordinary and odd, for comparing the checker's reader with onnxruntime.

Half of what is drawn should be valid, so shapes are followed; the other half of the interest is in what is nearly
valid: attributes of other operator sets, axes from the end, names twice, orders, types, optional inputs left out.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

TYPES = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.UINT8: np.uint8,
         TensorProto.INT32: np.int32, TensorProto.FLOAT16: np.float16}  # fmt: skip


@dataclass
class Graph:
    """A graph that grows: `values` are names with their shapes, as far as they are known to follow."""

    random: np.random.Generator
    opset: int
    kind: int
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    values: list[tuple[str, list[int]]] = field(default_factory=list)
    count: int = 0

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, *options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def new(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def weight(self, *shape: int, low: bool = False) -> str:
        """A constant of the graph's type, seldom of another; of numbers above 0 if `low`."""
        shape = tuple(max(1, n) for n in shape)  # of a value that cannot be
        dtype = TYPES[self.kind] if self.chance(0.97) else self.pick(np.float32, np.float64, np.int64)
        array = self.random.standard_normal(shape) if not low else self.random.random(shape) + 0.1
        if np.dtype(dtype).kind in "iu":
            array = self.random.integers(0, 4, shape)
        return self.constant(array.astype(dtype))

    def constant(self, array: Any) -> str:
        """As an initializer, or as a node, or in a roundabout way."""
        array, name = np.asarray(array), self.new("c")
        if self.chance(0.75):
            self.weights[name] = array
            return name
        if self.chance(0.5) or not array.size:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
            return name
        return self.roundabout(array, name)

    def roundabout(self, array: np.ndarray, name: str) -> str:
        """The same, a part, or a permutation of it, by operations on constants."""
        way, last = (
            self.pick("slice", "gather", "concat", "reshape", "transpose", "squeeze", "cast", "mul"),
            self.new("c"),
        )
        self.weights[last] = array
        if way == "slice" and array.ndim:
            axis = int(self.random.integers(array.ndim))
            n, step = array.shape[axis], self.pick(1, 1, -1)
            starts, ends = (0, n) if step > 0 else (n - 1, -n - 1)
            starts, ends = self.pick(starts, starts - 2 * n), self.pick(ends, 2**31 - 1 if step > 0 else -(2**31))
            self.slice(last, name, starts, ends, axis - self.pick(0, 0, array.ndim), step)
        elif way == "gather" and array.ndim:
            index = self.random.permutation(array.shape[0]) - self.pick(0, 0, array.shape[0])
            self.nodes.append(helper.make_node("Gather", [last, self.raw(index)], [name], **self.maybe(axis=0)))
        elif way == "concat" and array.ndim and array.shape[0] > 1:
            parts = [self.new("c") for _ in range(2)]
            self.weights |= dict(zip(parts, np.split(array, [1]), strict=True))
            self.nodes.append(helper.make_node("Concat", parts, [name], axis=self.pick(0, -array.ndim)))
        elif way == "transpose":
            perm = self.random.permutation(array.ndim)
            self.weights[last] = array.transpose(np.argsort(perm))
            self.nodes.append(
                helper.make_node("Transpose", [last], [name], **({"perm": perm.tolist()} if len(perm) else {}))
            )
        elif way == "squeeze":
            self.weights[last] = array[None]
            self.axes("Squeeze", last, name, [0] if self.chance(0.8) else [])
        elif way == "cast":
            to = {np.dtype(a): k for k, a in TYPES.items()}.get(array.dtype, TensorProto.INT64)
            self.nodes.append(helper.make_node("Cast", [last], [name], to=to))
        elif way == "mul" and array.dtype == np.int64:
            self.nodes.append(helper.make_node(self.pick("Mul", "Add"), [last, self.raw(np.int64(1))], [name]))
        else:
            shape = [self.pick(n, n, 0) if n else n for n in array.shape] or [1]
            self.nodes.append(helper.make_node("Reshape", [last, self.raw(np.array(shape))], [name]))
        return name

    def raw(self, array: Any) -> str:
        name = self.new("c")
        self.weights[name] = np.asarray(array)
        return name

    def slice(self, source: str, name: str, start: int, end: int, axis: int, step: int) -> None:
        if self.opset < 10 and step == 1:
            self.nodes.append(helper.make_node("Slice", [source], [name], starts=[start], ends=[end], axes=[axis]))
            return
        places = [self.raw(np.array([n])) for n in (start, end, axis, step)]
        self.nodes.append(helper.make_node("Slice", [source, *places], [name]))

    def axes(self, operation: str, source: str, name: str, axes: list[int]) -> None:
        """Axes as the operator set wants them, seldom the other way."""
        if (self.opset < 13) != self.chance(0.03):
            node = helper.make_node(operation, [source], [name])
            attribute = node.attribute.add(name="axes", type=AttributeProto.INTS)
            attribute.ints.extend(axes)  # which may be none
            self.nodes.append(node)
        else:
            self.nodes.append(helper.make_node(operation, [source, self.raw(np.array(axes, np.int64))], [name]))

    def maybe(self, **attributes: Any) -> dict[str, Any]:
        """Some of these attributes."""
        return {name: value for name, value in attributes.items() if self.chance(0.5)}

    def add(self, operation: str, inputs: list[str], shape: list[int], outputs: int = 1, **attributes: Any) -> None:
        name = self.new()
        more = [self.new("o") for _ in range(outputs - 1)]
        if self.chance(0.01):
            attributes |= {self.pick("axis", "alpha", "ceil_mode", "training_mode", "surprise"): self.pick(0, 1, 0.5)}
        domain = {"domain": "ai.onnx"} if self.chance(0.01) else {}
        self.nodes.append(helper.make_node(operation, inputs, [name, *more], **domain, **attributes))
        self.values.append((name, shape))


def windows(g: Graph, shape: list[int], dilations: bool) -> tuple[dict[str, Any], list[int], list[int]]:
    """Attributes, kernel and resulting sides of a convolution or a pooling."""
    kernel = [int(g.random.integers(1, 1 + max(1, min(3, n)))) for n in shape[2:]]
    stride, dilation, pads = [1, 1], [1, 1], [0, 0, 0, 0]
    attributes: dict[str, Any] = {}
    if g.chance(0.5):
        stride = [int(n) for n in g.random.integers(1, 4, 2)]
        attributes["strides"] = stride
    if dilations and g.chance(0.25):
        dilation = [int(n) for n in g.random.integers(1, 3, 2)]
        attributes["dilations"] = dilation
    mode = g.pick("NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER") if g.chance(0.3) else ""
    if mode:
        attributes["auto_pad"] = mode
    if (mode in ("", "NOTSET") and g.chance(0.4)) or g.chance(0.02):
        pads = [int(n) for n in g.random.integers(0, 1 + max(1, min(kernel) - 1), 4)]
        attributes["pads"] = pads
    if mode.startswith("SAME"):
        sides = [-(-n // s) for n, s in zip(shape[2:], stride, strict=True)]
    else:
        sides = [
            (n + pads[i] + pads[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i, n in enumerate(shape[2:])
        ]
    return attributes, kernel, sides


def grow(g: Graph) -> None:
    """One more operation on one of the values, mostly the last."""
    x, shape = g.values[-1] if g.chance(0.8) else g.values[int(g.random.integers(len(g.values)))]
    if len(shape) < 2:  # the batch dimension was lost, which nothing else here is made for
        x, shape = g.values[0]
    flat = [
        "Slice",
        "Gather",
        "Split",
        "ReduceSum",
        "Joined",
        "Gemm",
        "MatMul",
        "Relu",
        "LeakyRelu",
        "Add",
        "Mul",
        "Unsqueeze",
        "Concat",
        "BatchNormalization",
        "Reshape",
    ]
    image = ["Slice", "Gather", "Split", "ReduceMean", "ReduceSum", "ConvTranspose", "Resize", "Joined", "Conv", "Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "Flatten", "Pad", "BatchNormalization", "Relu",
             "LeakyRelu", "Add", "Sub", "Mul", "Div", "Neg", "Transpose", "Reshape", "Squeeze", "Concat"]  # fmt: skip
    operation = g.pick(*(image if len(shape) == 4 else flat), "Identity", "Dropout", "Residual", "ShapeOf", "Sub")
    _GROW.get(operation, _plain)(g, operation, x, shape)


def _plain(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    g.add(operation, [x], shape, **(g.maybe(alpha=g.pick(0.0, 0.1, -0.5, 2.0)) if operation == "LeakyRelu" else {}))


def _conv(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    attributes, kernel, sides = windows(g, shape, True)
    groups = g.pick(1, 1, shape[1], 2) if shape[1] % 2 == 0 else g.pick(1, 1, shape[1])
    out = groups * int(g.random.integers(1, 3))
    if groups > 1 or g.chance(0.2):
        attributes["group"] = groups
    more = {"kernel_shape": kernel} if g.chance(0.5) else {}
    weight = g.weight(out, shape[1] // groups, *kernel)
    bias = g.pick([], [g.weight(out)], [g.weight(out)], [""])
    g.add("Conv", [x, weight, *bias], [1, out, *sides], **attributes, **more)


def _pool(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    attributes, kernel, sides = windows(g, shape, g.opset >= (10 if operation == "MaxPool" else 19) or g.chance(0.02))
    if operation == "AveragePool":
        attributes |= g.maybe(count_include_pad=g.pick(0, 1, 1))
    elif g.chance(0.1):
        attributes["storage_order"] = g.pick(0, 1)
    if g.chance(0.1):
        attributes["ceil_mode"] = g.pick(0, 1)
    outputs = 2 if operation == "MaxPool" and g.chance(0.1) else 1
    g.add(operation, [x], [1, shape[1], *sides], outputs, kernel_shape=kernel, **attributes)


def _dense(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    out = int(g.random.integers(1, 5))
    if operation == "MatMul" or len(shape) != 2:
        g.add("MatMul", [x, g.weight(shape[-1], out)], [*shape[:-1], out])
        return
    turned = g.chance(0.5)
    attributes = g.maybe(alpha=g.pick(1.0, 0.5, -2.0), beta=g.pick(1.0, 0.3)) | ({"transB": 1} if turned else {})
    if g.chance(0.03):
        attributes["transA"] = g.pick(0, 1)
    bias = [g.weight(*g.pick([out], [1, out], [1], []))] if g.opset < 11 or g.chance(0.7) else g.pick([], [""])
    g.add("Gemm", [x, g.weight(out, shape[1]) if turned else g.weight(shape[1], out), *bias], [1, out], **attributes)


def _norm(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    given = [g.weight(shape[1], low=i == 3) for i in range(4)]
    attributes = g.maybe(epsilon=0.01, momentum=0.5)
    if g.opset < 9:
        attributes |= g.maybe(spatial=1)
    if g.opset >= 14:
        attributes |= g.maybe(training_mode=g.pick(0, 0, 0, 1))
    g.add(operation, [x, *given], shape, g.pick(1, 1, 1, 1, 1, 3, 5), **attributes)


def _arithmetic(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    same = [name for name, other in g.values if other == shape and name != x]
    if same and g.chance(0.4) and operation in ("Add", "Sub"):
        g.add(operation, [x, g.pick(*same)], shape)
        return
    spread = [n if g.chance(0.6) else 1 for n in shape][int(g.random.integers(len(shape))) :]
    pair = [x, g.weight(*spread, low=operation == "Div")]
    g.add(operation, pair[:: g.pick(1, 1, -1)] if operation != "Div" else pair, shape)


def _residual(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    g.add("Relu", [x], shape)
    g.add(g.pick("Add", "Sub"), [x, g.values[-1][0]][:: g.pick(1, -1)], shape)


def _flatten(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    axis = g.pick(1, 1, 1, 1, -3, 0, 2, 7)
    g.add("Flatten", [x], [1, int(np.prod(shape))], **({} if axis == 1 and g.chance(0.5) else {"axis": axis}))


def _reshape(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    size = int(np.prod(shape))
    new = g.pick([1, size], [1, -1], [0, -1], [1, 1, 1, size], [0, size, 1, 1], [-1, size], shape, [1, -1, 1, 1])
    attributes = g.maybe(allowzero=g.pick(0, 0, 1)) if g.opset >= 14 else {}
    final = [size if n == -1 and i else 1 if n in (0, -1) else n for i, n in enumerate(new)]
    g.add("Reshape", [x, g.constant(np.array(new))], final, **attributes)


def _squeeze(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    name = g.new()
    if operation == "Unsqueeze":
        axes = g.pick([2], [-1], [1], [1, 2], [2, 2], [9])
        g.axes(operation, x, name, axes)
        rank = len(shape) + len(axes)
        places, rest = {a % rank for a in axes}, list(shape)
        g.values.append((name, [1 if i in places or not rest else rest.pop(0) for i in range(rank)]))
        return
    ones = [i for i, n in enumerate(shape) if n == 1 and i]
    axes = g.pick([], ones, ones[:1], [a - len(shape) for a in ones], [0])
    g.axes(operation, x, name, axes)
    g.values.append((name, [n for i, n in enumerate(shape) if i not in {a % len(shape) for a in axes}] or [1]))


def _transpose(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    perm = [0, *(1 + g.random.permutation(len(shape) - 1)).tolist()]
    if g.chance(0.05):
        perm = g.pick([], perm[::-1], [perm[0] - len(shape), *perm[1:]])
    attributes = {"perm": [int(n) for n in perm]} if perm else {}
    g.add("Transpose", [x], [shape[i] for i in perm] if perm else shape[::-1], **attributes)


def _concat(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    parts = [x, *(name for name, other in g.values[-3:] if other == shape)]
    axis = int(g.random.integers(0 if g.chance(0.05) or len(shape) < 2 else 1, len(shape)))
    final = [n * len(parts) if i == axis else n for i, n in enumerate(shape)]
    g.add("Concat", parts, final, axis=axis - g.pick(0, 0, len(shape)))


def _pad(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    pads = [0, 0, *g.random.integers(0, 2, 2).tolist(), 0, 0, *g.random.integers(0, 2, 2).tolist()]
    if g.chance(0.1):
        pads[g.pick(1, 3, 5)] = g.pick(1, -1)
    final = [n + pads[i] + pads[i + 4] for i, n in enumerate(shape)]
    mode = {"mode": g.pick("constant", "constant", "edge", "reflect")} if g.chance(0.3) else {}
    if g.opset < 11:
        g.add("Pad", [x], final, pads=pads, **mode, **g.maybe(value=g.pick(0.0, 0.0, 1.0)))
    else:
        fill = g.pick([], [], [g.raw(TYPES[g.kind](g.pick(0, 0, 1)))], [""])
        g.add("Pad", [x, g.constant(np.array(pads)), *fill], final, **mode)


def _dropout(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    if g.opset < 12:
        g.add("Dropout", [x], shape, g.pick(1, 1, 2), **g.maybe(ratio=0.3))
        return
    training = g.pick([], [], [g.raw(np.float32(0.3))], [g.raw(np.float32(0.3)), g.raw(np.array(g.chance(0.2)))])
    g.add("Dropout", [x, *training], shape, g.pick(1, 1, 2))


def _shape_of(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    """Reshape to what is computed from the shape, as exporters write it."""
    whole, first, last = g.new("s"), g.new("s"), g.new("s")
    g.nodes.append(helper.make_node("Shape", [x], [whole], **({"start": 0} if g.opset >= 15 and g.chance(0.1) else {})))
    g.slice(whole, first, g.pick(0, -len(shape), -99), 1, 0, 1)
    g.nodes.append(helper.make_node("Concat", [first, g.raw(np.array([-1]))], [last], axis=0))
    g.add("Reshape", [x, last], [1, int(np.prod(shape))])


def _slice(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    axis = int(g.random.integers(0 if g.chance(0.05) else 1, len(shape)))
    n, step = shape[axis], g.pick(1, 1, 2, -1)
    start, end = (int(i) for i in g.random.integers(-n - 2, n + 3, 2))
    name = g.new()
    g.slice(x, name, start, end, axis - g.pick(0, 0, len(shape)), step)
    final = len(range(max(n, 0))[slice(start, end, step if g.opset >= 10 else 1)])
    g.values.append((name, [*shape[:axis], max(1, final), *shape[axis + 1 :]]))


def _gather(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    axis = int(g.random.integers(0 if g.chance(0.05) else 1, len(shape)))
    n = max(1, shape[axis])
    size = g.pick([], [1], [3], [2, 2])
    index = g.random.integers(-n if g.chance(0.3) else 0, n + g.chance(0.03), size)
    name = g.constant(np.asarray(index, g.pick(np.int64, np.int64, np.int32)))
    g.add("Gather", [x, name], [*shape[:axis], *size, *shape[axis + 1 :]], axis=axis - g.pick(0, 0, len(shape)))


def _split(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    axis, names = int(g.random.integers(1, len(shape))), [g.new(), g.new()]
    n = shape[axis]
    first = int(g.random.integers(1, max(2, n))) if g.chance(0.6) else -(-n // 2)
    given, attributes = [], {"axis": axis - g.pick(0, 0, len(shape))}
    if first != n - first or g.chance(0.5):
        if g.opset < 13:
            attributes["split"] = [first, n - first]
        else:
            given = [g.constant(np.array([first, n - first]))]
    elif g.opset >= 18:
        attributes["num_outputs"] = 2
    g.nodes.append(helper.make_node("Split", [x, *given], names, **attributes))
    parts = [(name, [*shape[:axis], k, *shape[axis + 1 :]]) for name, k in zip(names, (first, n - first), strict=True)]
    g.values += parts[:: g.pick(1, -1)]


def _reduce(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    axes = sorted({int(i) for i in g.random.integers(0 if g.chance(0.03) else 1, len(shape), 2)})
    keep = g.pick(0, 1)
    final = [1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes]
    written = [a - g.pick(0, 0, len(shape)) for a in axes]
    attributes: dict[str, Any] = {} if keep and g.chance(0.5) else {"keepdims": keep}
    if g.opset < (13 if operation == "ReduceSum" else 18):
        g.add(operation, [x], final, axes=written, **attributes)
    else:
        g.add(operation, [x, g.constant(np.array(written))], final, **attributes)


def _conv_transpose(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    groups = g.pick(1, 1, shape[1])
    kernel, stride, dilation = (g.random.integers(1, 4, 2).tolist() for _ in range(3))
    dilation = dilation if g.chance(0.3) else [1, 1]
    pads = g.random.integers(0, 2, 4).tolist() if g.chance(0.5) else [0] * 4
    more = [int(g.random.integers(0, s)) for s in stride] if g.chance(0.3) else [0, 0]
    out = int(g.random.integers(1, 3))
    sides = [
        (n - 1) * s + d * (k - 1) + 1 - pads[i] - pads[i + 2] + m
        for i, (n, s, d, k, m) in enumerate(zip(shape[2:], stride, dilation, kernel, more, strict=True))
    ]
    inputs = [x, g.weight(shape[1], out, *kernel), *g.pick([], [g.weight(out * groups)])]
    attributes = {"strides": stride, "dilations": dilation, "pads": pads, "group": groups, "output_padding": more}
    g.add(operation, inputs, [1, out * groups, *sides], **attributes)


def _resize(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    times = [1, 1, *(int(n) for n in g.random.integers(1, 4, 2))]
    scales = np.array(times, np.float32) if g.chance(0.95) else np.array([1, 1, 1.5, 2], np.float32)
    final = [int(n * t) for n, t in zip(shape, scales, strict=True)]
    if g.opset < 9:
        g.add("Upsample", [x], final, scales=scales.tolist(), mode="nearest")
    elif g.opset < 11:
        g.add("Upsample" if g.opset == 9 else "Resize", [x, g.constant(scales)], final, mode="nearest")
    else:
        where = g.pick("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
        rounding = g.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        how = g.maybe(
            coordinate_transformation_mode=where, nearest_mode=rounding, mode=g.pick("nearest", "nearest", "linear")
        )
        empty = "" if g.opset >= 13 else g.raw(np.zeros(0, np.float32))
        if g.chance(0.5):
            g.add("Resize", [x, empty, g.constant(scales)], final, **how)
        else:
            g.add("Resize", [x, empty, empty, g.constant(np.array(final))], final, **how)


def _joined(g: Graph, operation: str, x: str, shape: list[int]) -> None:
    axis = int(g.random.integers(1, len(shape)))
    parts = [x, g.weight(*shape), *g.pick([], [x], [g.weight(*shape)])]
    final = [n * len(parts) if i == axis else n for i, n in enumerate(shape)]
    g.add("Concat", parts[:: g.pick(1, -1)], final, axis=axis)


_GROW = {
    "Slice": _slice, "Gather": _gather, "Split": _split, "ReduceMean": _reduce, "ReduceSum": _reduce,
    "ConvTranspose": _conv_transpose, "Resize": _resize, "Joined": _joined,
    "Conv": _conv, "MaxPool": _pool, "AveragePool": _pool, "Gemm": _dense, "MatMul": _dense,
    "BatchNormalization": _norm, "Add": _arithmetic, "Sub": _arithmetic, "Mul": _arithmetic, "Div": _arithmetic,
    "Residual": _residual, "Flatten": _flatten, "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _squeeze,
    "Transpose": _transpose, "Concat": _concat, "Pad": _pad, "Dropout": _dropout, "ShapeOf": _shape_of,
    "GlobalAveragePool": lambda g, o, x, shape: g.add(o, [x], [*shape[:2], 1, 1]),
}  # fmt: skip


def draw(seed: int) -> tuple[bytes, list[int], Any]:
    """The file, the shape of its input and its type in NumPy."""
    random = np.random.default_rng(seed)
    kind = int(random.choice(list(TYPES), p=[0.93, 0.03, 0.02, 0.01, 0.01]))
    g = Graph(random, int(random.integers(7, 23)), kind)
    shape = [1, *g.pick([int(random.integers(1, 4)), *random.integers(2, 6, 2).tolist()], [int(random.integers(1, 6))])]
    g.values.append(("x", shape))
    for _ in range(int(random.integers(1, 7))):
        grow(g)
    output = g.values[-1][0]
    _disturb(g)
    entries = [helper.make_tensor_value_info("x", kind, [g.pick(1, 1, "batch"), *shape[1:]])]
    if g.weights and g.chance(0.1):  # a constant that is also an input, as files of old have it
        name = next(iter(g.weights))
        known = {np.dtype(a): k for k, a in TYPES.items()} | {np.dtype(np.int64): TensorProto.INT64}
        entries.append(helper.make_tensor_value_info(name, known[g.weights[name].dtype], g.weights[name].shape))
    graph = helper.make_graph(
        g.nodes, "g", entries, [helper.make_tensor_value_info(output, kind, None)],
        [numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), name) for name, a in g.weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=g.pick(7, 8))
    return model.SerializeToString(), shape, TYPES[kind]


def _disturb(g: Graph) -> None:
    """Now and then: another order, a name twice, an input dropped, a node that nothing uses."""
    way = g.pick("order", "twice", "drop", "unused", "swap") if g.chance(0.08) else "none"
    node = g.nodes[int(g.random.integers(len(g.nodes)))]
    if way == "order" and len(g.nodes) > 1:
        g.nodes[0], g.nodes[-1] = g.nodes[-1], g.nodes[0]
    elif way == "twice":
        node.output[0] = g.nodes[0].output[0]
    elif way == "drop" and len(node.input) > 1:
        node.input[-1] = ""
    elif way == "unused":
        g.nodes.append(helper.make_node("Relu", ["x"], [g.new()]))
    elif way == "swap" and len(node.input) > 1:
        node.input[0], node.input[1] = node.input[1], node.input[0]
