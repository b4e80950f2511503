"""Operations of an ONNX file that only move values: shapes, slices, joins."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lingraft.checker.constants import (
    Attributes,
    axis_of,
    integers,
    new_shape,
    order_of,
    slice_places,
    squeezed,
    take,
    unsqueezed,
)
from lingraft.checker.network import Builder, Value
from lingraft.errors import LingraftError

#: Attributes of Resize that matter for other modes only, or that must say what is usual.
_USUAL = {"exclude_outside": 0, "antialias": 0, "keep_aspect_ratio_policy": "stretch"}


class Moves(Builder):
    """Reads such nodes, of an operator set `version`, of a network whose input has type `dtype`."""

    version: int
    dtype: np.dtype[Any]
    #: zero-padded maps: the node that was padded, and by how much (top, left, bottom, right)
    padded: dict[int, tuple[int, tuple[int, int, int, int]]]

    def shifted(self, x: Value, constant: np.ndarray) -> Value:
        """x plus a constant that broadcasts to it."""
        raise NotImplementedError

    def _reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        return self.moved(x, lambda numbers: numbers.reshape(shape))

    def _on_flatten(self, at: Attributes, x: Value) -> Value:
        axis, rank = take(at, "axis", 1), len(x.shape)
        if not (-rank if self.version >= 11 else 0) <= axis <= rank:
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
        if "axis" not in at:
            raise LingraftError("no axis")
        axis = axis_of(at["axis"], len(parts[0].shape))
        if len({(*part.shape[:axis], 0, *part.shape[axis + 1 :]) for part in parts}) > 1:
            raise LingraftError("the parts do not fit together")
        ends = np.cumsum([part.shape[axis] for part in parts]).tolist()
        shape = [*parts[0].shape[:axis], ends[-1], *parts[0].shape[axis + 1 :]]
        self.inner_shape(shape)
        places = [
            (slice(None),) * axis + (slice(end - part.shape[axis], end),) for end, part in zip(ends, parts, strict=True)
        ]
        pieces, shift = list[Value](), None
        for part, place in zip(parts, places, strict=True):
            if isinstance(part, Value):
                pieces.append(self.moved(part, partial(_placed, shape, place)))
                continue
            if part.dtype != self.dtype:
                raise LingraftError(f"a constant of type {part.dtype} is joined")
            if shift is None:
                self.spend(math.prod(shape))
                shift = np.zeros(shape, self.dtype)
            shift[place] = part
        joined = pieces[0] if len(pieces) == 1 else self.summed(pieces, [1.0] * len(pieces))
        return joined if shift is None else self.shifted(joined, shift)

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

    def _on_slice(self, at: Attributes, x: Value, *rest: Any) -> Value:
        cut = slice_places(x.shape, at, rest, self.version)
        if not all(len(places) for places in cut):
            raise LingraftError("a slice that holds nothing")
        return self.moved(x, lambda numbers: numbers[np.ix_(*cut)])

    def _on_gather(self, at: Attributes, x: Value, index: np.ndarray) -> Value:
        axis = axis_of(take(at, "axis", 0), len(x.shape))
        n = x.shape[axis]
        if index.dtype not in (np.int64, np.int32) or not index.size or not -n <= index.min() <= index.max() < n:
            raise LingraftError("indices that do not exist")
        if self.version < 11 and (index < 0).any():
            raise LingraftError(f"negative indices in operator set {self.version}")
        self.inner_shape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])
        return self.moved(x, lambda numbers: np.take(numbers, index, axis))

    def _on_split(self, at: Attributes, x: Value, sizes: Any = None, *, outputs: int) -> list[Value]:
        axis = axis_of(take(at, "axis", 0), len(x.shape))
        given, n = integers(at, "split", [sizes], 0), x.shape[axis]
        count = take(at, "num_outputs", outputs, outputs)
        if given is None:
            each = -(-n // count)
            given = [each] * (count - 1) + [n - each * (count - 1)]
            if given[-1] != each and "num_outputs" not in at:
                raise LingraftError(f"{n} values do not make {count} equal parts")
        if len(given) != outputs or min(given) < 1 or sum(given) != n:
            raise LingraftError(f"parts of {given} of {n} values")
        ends = np.cumsum(given).tolist()
        return [self.moved(x, partial(_between, axis, end - size, end)) for end, size in zip(ends, given, strict=True)]

    def _on_upsample(self, at: Attributes, x: Value, scales: Any = None) -> Value:
        take(at, "mode", "nearest", "nearest")
        return self._repeated(x, at.get("scales") if scales is None else scales, None)

    def _on_resize(self, at: Attributes, x: Value, *rest: Any) -> Value:
        """Every value several times: what is nearest is then the same by all usual ways to count."""
        take(at, "mode", "nearest", "nearest")
        if self.version < 11:
            return self._repeated(x, rest[0], None)
        where = take(
            at, "coordinate_transformation_mode", "half_pixel", "half_pixel", "pytorch_half_pixel", "asymmetric"
        )
        rounding = take(at, "nearest_mode", "round_prefer_floor")
        fine = ("floor",) if where == "asymmetric" else ("round_prefer_floor", "round_prefer_ceil")
        if rounding not in fine:
            raise LingraftError(f"the nearest value by {where} and {rounding}")
        for name, usual in _USUAL.items():
            take(at, name, usual, usual)
        scales, sizes = (None if a is None or not a.size else a for a in (*rest[1:], None, None)[:2])
        return self._repeated(x, scales, sizes)

    def _repeated(self, x: Value, scales: Any, sizes: Any) -> Value:
        """Maps whose sides are multiplied by whole numbers; one of the two says by which."""
        if len(x.shape) != 4 or (scales is None) == (sizes is None) or len(scales if sizes is None else sizes) != 4:
            raise LingraftError("only images can be resized, by four factors or to four sizes")
        factors = scales if sizes is None else [size / n for size, n in zip(sizes.tolist(), x.shape, strict=True)]
        times = [int(f) for f in factors]
        if times[:2] != [1, 1] or any(f != t or not 1 <= t <= 1 << 10 for f, t in zip(factors, times, strict=True)):
            raise LingraftError("resizing by anything but whole factors of height and width")
        self.inner_shape([n * t for n, t in zip(x.shape, times, strict=True)])
        return self.moved(x, lambda numbers: numbers.repeat(times[2], 2).repeat(times[3], 3))


def _placed(shape: Sequence[int], place: tuple[slice, ...], numbers: np.ndarray) -> np.ndarray:
    whole = np.full(shape, -1)
    whole[place] = numbers
    return whole


def _between(axis: int, first: int, end: int, numbers: np.ndarray) -> np.ndarray:
    return numbers[(slice(None),) * axis + (slice(first, end),)]
