"""What an ONNX file computes, in rational numbers or in float64, by the onnx package and a page of NumPy.

It shares nothing with the checker: the file is parsed by protobuf, values keep the file's order. A value is an array of
the file's shape with one more axis behind: the points that are evaluated, or the coefficients of a linear function.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray

#: Roots are rounded to so many binary digits; what is closer to 0 than DOUBT is then not decided.
ROOT_BITS, DOUBT = 400, Fraction(1, 2**250)


class Unknown(Exception):
    """An operation that is not evaluated here."""


def rational(array: Array) -> Array:
    """Each number as a fraction."""
    flat = [Fraction(float(value)) for value in np.ravel(array)]
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(np.shape(array))


def root(value: Fraction) -> Fraction:
    """√value, rounded to ROOT_BITS digits."""
    bits = ROOT_BITS + max(0, value.denominator.bit_length() - value.numerator.bit_length())
    return Fraction(math.isqrt((value.numerator << 2 * bits) // value.denominator), 1 << bits)


class Evaluator:
    """The graph of an ONNX file, run on columns; `exact` says whether numbers are fractions."""

    def __init__(self, content: bytes, exact: bool):
        try:
            model = onnx.load_model_from_string(content)
        except Exception as error:
            raise Unknown(f"not a file of onnx: {type(error).__name__}") from error
        self.exact, graph = exact, model.graph
        self.opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
        self.rooted = False
        self.nodes = list(graph.node)
        self.constants: dict[str, Array] = {}
        for tensor in graph.initializer:
            self.constants[tensor.name] = self._tensor(tensor)
        inputs = [value for value in graph.input if value.name not in self.constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise Unknown("inputs or outputs")
        self.input, self.output = inputs[0].name, graph.output[0].name
        dims = [d.dim_value for d in inputs[0].type.tensor_type.shape.dim]
        self.shape = (1, *dims[1:])
        if min(dims[1:], default=0) < 1 or math.prod(self.shape) > 1000:
            raise Unknown("input shape")

    def _tensor(self, tensor: Any) -> Array:
        try:
            array = numpy_helper.to_array(tensor)
        except Exception as error:
            raise Unknown(f"tensor: {error}") from error
        if array.size > 100_000:
            raise Unknown("large tensor")
        if array.dtype.kind != "f":
            return array
        if not np.isfinite(array).all():
            raise Unknown("not finite")
        return rational(array) if self.exact else array.astype(np.float64)

    def run(self, x: Array, unit: Array, bend: Callable[..., Array], largest: Callable[..., Array]) -> Array:
        """Outputs (outputs, B) for inputs (n, B); constants count `unit` (B,). `bend` and `largest` do the rest."""
        self.unit, self.bend, self.largest = unit, bend, largest
        values: dict[str, Any] = dict(self.constants)
        values[self.input] = x.reshape(*self.shape, -1)
        self.varying = {self.input}
        for node in self.nodes:
            if node.domain not in ("", "ai.onnx"):
                raise Unknown(f"domain {node.domain}")
            given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            handler = getattr(self, f"_{node.op_type.lower()}", None)
            varies = [name in self.varying for name in node.input]
            inputs = [values[name] if name else None for name in node.input]
            if handler is None or len(node.output) < 1 or any(values.get(name) is not None for name in node.output):
                raise Unknown(node.op_type)
            try:
                result = handler(given, varies, *inputs)
            except Unknown:
                raise
            except (ValueError, TypeError, IndexError, AttributeError, ZeroDivisionError, KeyError) as error:
                raise Unknown(f"{node.op_type}: {error}") from error
            if given:
                raise Unknown(f"{node.op_type}: attributes {list(given)}")
            values[node.output[0]] = result
            if any(varies) and node.op_type != "Shape":
                self.varying.add(node.output[0])
        if self.output not in self.varying:
            raise Unknown("a constant output")
        return values[self.output].reshape(-1, len(unit))

    # --- operations: attributes, which inputs vary, inputs ------------------------------------------------------------

    def _number(self, value: float) -> Any:
        return Fraction(float(value)) if self.exact else float(value)

    def _constant(self, at: dict, varies: list[bool]) -> Array:
        if list(at) != ["value"]:
            raise Unknown("constant")
        return self._tensor(at.pop("value"))

    def _identity(self, at: dict, varies: list[bool], x: Array) -> Array:
        return x

    def _dropout(self, at: dict, varies: list[bool], x: Array, ratio: Any = None, training: Any = None) -> Array:
        at.pop("ratio", None), at.pop("seed", None)
        if training is not None and np.any(training):
            raise Unknown("training")
        return x

    def _relu(self, at: dict, varies: list[bool], x: Array) -> Array:
        if not varies[0]:
            raise Unknown("constant")
        return self.bend(x, self._number(0.0))

    def _leakyrelu(self, at: dict, varies: list[bool], x: Array) -> Array:
        if not varies[0]:
            raise Unknown("constant")
        return self.bend(x, self._number(np.float32(at.pop("alpha", 0.01))))

    def _both(self, varies: list[bool], a: Array, b: Array) -> tuple[Array, Array]:
        """Operands of a sum: constants times the unit."""
        return tuple(
            v if is_varying else v[..., None] * self.unit for v, is_varying in zip((a, b), varies, strict=True)
        )  # type: ignore[return-value]

    def _add(self, at: dict, varies: list[bool], a: Array, b: Array) -> Array:
        a, b = self._both(varies, a, b)
        return self._aligned(a, b, np.add)

    def _sub(self, at: dict, varies: list[bool], a: Array, b: Array) -> Array:
        a, b = self._both(varies, a, b)
        return self._aligned(a, b, np.subtract)

    def _mul(self, at: dict, varies: list[bool], a: Array, b: Array) -> Array:
        if all(varies) or not any(varies):
            raise Unknown("product")
        x, c = (a, b) if varies[0] else (b, a)
        return self._aligned(x, c[..., None], np.multiply)

    def _div(self, at: dict, varies: list[bool], a: Array, b: Array) -> Array:
        if varies[1] or not varies[0]:
            raise Unknown("quotient")
        return self._aligned(a, b[..., None], np.divide)

    def _aligned(self, a: Array, b: Array, operation: Any) -> Array:
        if not (self._real(a) and self._real(b)):
            raise Unknown("numbers of other types")
        return operation(a, b)

    def _real(self, a: Array) -> bool:
        return a.dtype == object or a.dtype == np.float64

    def _neg(self, at: dict, varies: list[bool], x: Array) -> Array:
        return -x

    def _matmul(self, at: dict, varies: list[bool], x: Array, w: Array) -> Array:
        if varies != [True, False] or x.ndim != 3 or w.ndim != 2:
            raise Unknown("product")
        return np.tensordot(w.T, x[0], (1, 0))[None]

    def _gemm(self, at: dict, varies: list[bool], x: Array, w: Array, c: Array | None = None) -> Array:
        if not varies[0] or any(varies[1:]) or x.ndim != 3 or w.ndim != 2 or at.pop("transA", 0):
            raise Unknown("product")
        alpha, beta = (self._number(np.float32(at.pop(name, 1.0))) for name in ("alpha", "beta"))
        matrix = w if at.pop("transB", 0) else w.T
        result = alpha * np.tensordot(matrix, x[0], (1, 0))[None]
        return result if c is None else result + beta * np.broadcast_to(c, result.shape[:2])[..., None] * self.unit

    def _batchnormalization(self, at: dict, varies: list[bool], x: Array, *parts: Array) -> Array:
        if any(varies[1:]) or at.pop("training_mode", 0) or self.opset < 9:
            raise Unknown("batch norm")
        at.pop("momentum", None)
        self.rooted = True
        epsilon = self._number(np.float32(at.pop("epsilon", 1e-5)))
        view = (1, -1) + (1,) * (x.ndim - 2)
        scale, shift, mean, variance = (part.reshape(view) for part in parts)
        spread = variance + epsilon
        if not (spread > 0).all():
            raise Unknown("variance")
        if self.exact:
            rooted = np.empty(spread.shape, dtype=object)
            rooted.reshape(-1)[:] = [root(value) for value in spread.reshape(-1)]
        else:
            rooted = np.sqrt(spread)
        return (x - mean * self.unit) * (scale / rooted) + shift * self.unit

    # windows

    def _windows(
        self, at: dict, x: Array, kernel: Sequence[int]
    ) -> tuple[list[int], list[int], list[int], tuple[int, int]]:
        stride, dilation = list(at.pop("strides", [1, 1])), list(at.pop("dilations", [1, 1]))
        mode = at.pop("auto_pad", b"NOTSET").decode()
        pads = list(at.pop("pads", [0, 0, 0, 0]))
        if x.ndim != 5 or len(kernel) != 2 or len(pads) != 4 or min(*stride, *dilation, *kernel) < 1 or min(pads) < 0:
            raise Unknown("window")
        if mode not in ("NOTSET", "VALID") or (mode == "VALID" and any(pads)):
            raise Unknown("auto_pad")
        sides = [
            (n + pads[i] + pads[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i, n in enumerate(x.shape[2:4])
        ]
        if min(sides) < 1 or max(pads) > 20:
            raise Unknown("window")
        return pads, stride, dilation, (sides[0], sides[1])

    def _looks(self, x: Array, kernel: Sequence[int], window: Any, fill: Any) -> dict[tuple[int, int], Array]:
        """For each place of the kernel, what it sees: (C, H, W, B)."""
        pads, stride, dilation, (height, width) = window
        wide = np.full(
            (x.shape[1], x.shape[2] + pads[0] + pads[2], x.shape[3] + pads[1] + pads[3], x.shape[4]),
            fill,
            dtype=x.dtype,
        )
        wide[:, pads[0] : pads[0] + x.shape[2], pads[1] : pads[1] + x.shape[3]] = x[0]
        found = {}
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                top, left = i * dilation[0], j * dilation[1]
                rows = slice(top, top + (height - 1) * stride[0] + 1, stride[0])
                found[i, j] = wide[:, rows, left : left + (width - 1) * stride[1] + 1 : stride[1]]
        return found

    def _conv(self, at: dict, varies: list[bool], x: Array, w: Array, b: Array | None = None) -> Array:
        if not varies[0] or any(varies[1:]) or w.ndim != 4:
            raise Unknown("convolution")
        groups, kernel = at.pop("group", 1), list(w.shape[2:])
        if list(at.pop("kernel_shape", kernel)) != kernel or w.shape[1] * groups != x.shape[1] or len(w) % groups:
            raise Unknown("convolution")
        looks = self._looks(x, kernel, self._windows(at, x, kernel), self._number(0.0))
        each, outs = x.shape[1] // groups, len(w) // groups
        parts = []
        for g in range(groups):
            mine = w[g * outs : (g + 1) * outs]
            terms = [
                np.tensordot(mine[:, :, i, j], seen[g * each : (g + 1) * each], (1, 0))
                for (i, j), seen in looks.items()
            ]
            parts.append(sum(terms[1:], terms[0]))
        result = np.concatenate(parts)[None]
        return result if b is None else result + b.reshape(1, -1, 1, 1, 1) * self.unit

    def _maxpool(self, at: dict, varies: list[bool], x: Array) -> Array:
        kernel = list(at.pop("kernel_shape"))
        if at.pop("ceil_mode", 0) or at.pop("storage_order", 0):
            raise Unknown("pooling")
        window = self._windows(at, x, kernel)
        places = np.arange(math.prod(x.shape[1:4])).reshape(1, *x.shape[1:4], 1)
        seen = np.stack([look[..., 0] for look in self._looks(places, kernel, window, -1).values()])
        if (seen.max(0) < 0).any():
            raise Unknown("only padding")
        seen = np.where(seen < 0, seen.max(0), seen)
        return self.largest([x.reshape(-1, x.shape[-1])[look] for look in seen])[None]

    def _averagepool(self, at: dict, varies: list[bool], x: Array) -> Array:
        kernel, counted = list(at.pop("kernel_shape")), at.pop("count_include_pad", 0)
        if at.pop("ceil_mode", 0):
            raise Unknown("pooling")
        window = self._windows(at, x, kernel)
        if any(window[0]) and not counted:
            raise Unknown("padding that does not count")
        looks = list(self._looks(x, kernel, window, self._number(0.0)).values())
        return (sum(looks[1:], looks[0]) / self._number(len(looks)))[None]

    def _globalaveragepool(self, at: dict, varies: list[bool], x: Array) -> Array:
        return x.sum((2, 3), keepdims=True) / self._number(math.prod(x.shape[2:4]))

    # shapes

    def _reshaped(self, x: Array, shape: Sequence[int], varies: bool) -> Array:
        return x.reshape(*shape, x.shape[-1]) if varies else x.reshape(shape)

    def _flatten(self, at: dict, varies: list[bool], x: Array) -> Array:
        axis, shape = at.pop("axis", 1), x.shape[: x.ndim - varies[0]]
        if not 0 <= axis <= len(shape):
            raise Unknown("axis")
        return self._reshaped(x, (math.prod(shape[:axis]), math.prod(shape[axis:])), varies[0])

    def _reshape(self, at: dict, varies: list[bool], x: Array, shape: Array) -> Array:
        if at.pop("allowzero", 0) or shape.dtype != np.int64:
            raise Unknown("reshape")
        old = x.shape[: x.ndim - varies[0]]
        wanted = [old[i] if n == 0 else int(n) for i, n in enumerate(shape)]
        if wanted.count(-1) == 1:
            wanted[wanted.index(-1)] = math.prod(old) // -math.prod(wanted)
        if min(wanted, default=1) < 1:
            raise Unknown("reshape")
        return self._reshaped(x, wanted, varies[0])

    def _shape(self, at: dict, varies: list[bool], x: Array) -> Array:
        return np.array(x.shape[: x.ndim - varies[0]], dtype=np.int64)

    def _gather(self, at: dict, varies: list[bool], x: Array, index: Array) -> Array:
        if any(varies):
            raise Unknown("gather")
        return np.take(x, index, at.pop("axis", 0))

    def _squeeze(self, at: dict, varies: list[bool], x: Array, axes: Array | None = None) -> Array:
        chosen = at.pop("axes", None) if axes is None else axes.tolist()
        rank = x.ndim - varies[0]
        if not chosen:
            raise Unknown("squeeze")
        return np.squeeze(x, tuple(a % rank for a in chosen))

    def _unsqueeze(self, at: dict, varies: list[bool], x: Array, axes: Array | None = None) -> Array:
        chosen = at.pop("axes", None) if axes is None else axes.tolist()
        rank = x.ndim - varies[0] + len(chosen)
        return np.expand_dims(x, tuple(a % rank for a in chosen))

    def _transpose(self, at: dict, varies: list[bool], x: Array) -> Array:
        rank = x.ndim - varies[0]
        order = list(at.pop("perm", range(rank)[::-1]))
        if sorted(order) != list(range(rank)):
            raise Unknown("perm")
        return x.transpose([*order, rank] if varies[0] else order)

    def _concat(self, at: dict, varies: list[bool], *parts: Array) -> Array:
        if len(set(varies)) != 1:
            raise Unknown("concat of both")
        rank = parts[0].ndim - varies[0]
        return np.concatenate(parts, axis=at.pop("axis") % rank)

    def _pad(self, at: dict, varies: list[bool], x: Array, pads: Array | None = None, value: Any = None) -> Array:
        widths = at.pop("pads", None) if pads is None else pads.tolist()
        if (
            at.pop("mode", b"constant") != b"constant"
            or at.pop("value", 0)
            or (value is not None and np.any(value != 0))
        ):
            raise Unknown("padding")
        rank = x.ndim - varies[0]
        if len(widths) != 2 * rank or min(widths) < 0 or max(widths) > 20 or not varies[0]:
            raise Unknown("padding")
        pairs = [*zip(widths[:rank], widths[rank:], strict=True), (0, 0)]
        return np.pad(x, pairs, constant_values=self._number(0.0))


def _bent(z: Array, slope: Any) -> Array:
    return np.where(z > 0, z, slope * z)


def _most(players: list[Array]) -> Array:
    result = players[0]
    for player in players[1:]:
        result = np.where(player > result, player, result)
    return result


def outputs_at(content: bytes, points: Array) -> tuple[Array, bool]:
    """Exact outputs (outputs, B) at points (B, n), and whether roots were rounded on the way."""
    exact = points.T if points.dtype == object else rational(points.T)
    try:
        evaluator = Evaluator(content, exact=True)
        outputs = evaluator.run(exact, np.full(len(points), Fraction(1), dtype=object), _bent, _most)
    except Unknown:
        raise
    except Exception as error:  # the file may be damaged in any way
        raise Unknown(f"{type(error).__name__}: {error}") from error
    return outputs, evaluator.rooted
