"""ONNX operations that only move values: shapes, slices, joins."""

import math
import operator
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx

from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.onnx_node import OnnxNode
from lingraft.formats.onnx_translators import translates


def axis_of(node: OnnxNode, axis: int, shape: Sequence[int]) -> int:
    """An axis of that shape, which may be counted from the end."""
    if not -len(shape) <= axis < len(shape):
        raise node.unsupported(f"axis {axis} of a value of shape {tuple(shape)}")
    return axis % len(shape)


def taken(builder: GraphBuilder, x: fx.Node, axis: int, index: slice | int | list[int]) -> fx.Node:
    """x[…, index, …] along an axis that the file has."""
    if axis == 0 and not builder.is_bare(x):
        x = builder.bare(x)
    return builder.call(operator.getitem, x, (slice(None),) * (axis + builder.is_bare(x)) + (index,))


def _places(builder: GraphBuilder, x: fx.Node, axis: int, places: Sequence[int]) -> fx.Node:
    """The values at these places of an axis, as a slice where they are one."""
    places, step = list(places), places[1] - places[0] if len(places) > 1 else 1
    if places == list(range(builder.file_shape(x)[axis])):
        return x
    if step > 0 and places == list(range(places[0], places[-1] + 1, step)):
        return taken(builder, x, axis, slice(places[0], places[-1] + 1, step))
    return taken(builder, x, axis, places)


# Shapes


@translates("Flatten")
def _flatten(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    old = builder.file_shape(x)
    axis = node.attribute("axis", 1)
    axis = axis + len(old) if axis < 0 else axis
    return builder.reshape(x, (math.prod(old[:axis]), math.prod(old[axis:])))


@translates("Reshape")
def _reshape(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    old = builder.file_shape(x)
    new = node.integers("shape", 1) or []
    if node.attribute("allowzero", 0):
        if 0 in new:
            raise node.unsupported(f"the shape {new}, which holds nothing,")
    else:
        new = [old[i] if n == 0 else n for i, n in enumerate(new)]
    if new.count(-1) == 1:
        known = -math.prod(new)
        new = [math.prod(old) // known if n == -1 and known else n for n in new]
    return builder.reshape(x, tuple(new))


@translates("Squeeze")
def _squeeze(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    old = builder.file_shape(x)
    axes = node.integers("axes", 1)
    if axes is None:
        axes = [i for i, n in enumerate(old) if n == 1]
    axes = [axis_of(node, a, old) for a in axes]
    if any(old[a] != 1 for a in axes):
        raise node.unsupported(f"axes {axes} of shape {old}")
    return builder.reshape(x, tuple(n for i, n in enumerate(old) if i not in axes))


@translates("Unsqueeze")
def _unsqueeze(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    rest = list(builder.file_shape(x))
    axes = node.integers("axes", 1) or []
    rank = len(rest) + len(axes)
    places = {axis_of(node, a, [1] * rank) for a in axes}
    return builder.reshape(x, tuple(1 if i in places else rest.pop(0) for i in range(rank)))


@translates("Transpose")
def _transpose(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    rank = len(builder.file_shape(x))
    order = list(node.attribute("perm", list(reversed(range(rank)))))
    if order == list(range(rank)):
        return x
    if order[0] != 0 and not builder.is_bare(x):
        x = builder.bare(x)
    return builder.method("permute", x, *([0, *(i + 1 for i in order)] if builder.is_bare(x) else order))


# Parts


@translates("Slice")
def _slice(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    shape = builder.file_shape(x)
    starts, ends = node.integers("starts", 1) or [], node.integers("ends", 2) or []
    axes, steps = node.integers("axes", 3), node.integers("steps", 4)
    axes, steps = list(range(len(starts))) if axes is None else axes, steps or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = axis_of(node, axis, shape)
        places = range(shape[axis])[slice(start, end, step)]  # Python and ONNX cut to the same ends
        if not places:
            raise node.unsupported("a slice that holds nothing")
        x = _places(builder, x, axis, places)
    return x


@translates("Gather")
def _gather(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x, index = node.value(0), node.constant(1)
    shape = builder.file_shape(x)
    axis = axis_of(node, node.attribute("axis", 0), shape)
    if not index.size or index.min() < -shape[axis] or index.max() >= shape[axis]:
        raise node.unsupported(f"places {index.ravel()[:4].tolist()} along an axis of {shape[axis]}")
    places = (index.ravel() % shape[axis]).tolist()
    if index.ndim == 0 and axis > 0:
        return taken(builder, x, axis, places[0])
    found = _places(builder, x, axis, places)
    return found if index.ndim == 1 else builder.reshape(found, (*shape[:axis], *index.shape, *shape[axis + 1 :]))


@translates("Split")
def _split(builder: GraphBuilder, node: OnnxNode) -> list[fx.Node]:
    x = node.value(0)
    shape, count = builder.file_shape(x), len(node.proto.output)
    axis = axis_of(node, node.attribute("axis", 0), shape)
    sizes = node.integers("split", 1)
    if node.attribute("num_outputs", count) != count:
        raise node.unsupported("a number of outputs that is not the node's")
    if sizes is None:
        each = -(-shape[axis] // count)
        sizes = [min(each, shape[axis] - i * each) for i in range(count)]
    if len(sizes) != count or min(sizes) < 1 or sum(sizes) != shape[axis]:
        raise node.unsupported(f"parts of {sizes} of {shape[axis]} values")
    ends = np.cumsum(sizes).tolist()
    return [_places(builder, x, axis, range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


# Several of them


@translates("Expand")
def _expand(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    shape = builder.file_shape(x)
    final = np.broadcast_shapes(shape, tuple(int(n) for n in node.constant(1).ravel()))
    return _repeated(builder, x, (1,) * (len(final) - len(shape)) + shape, final)


@translates("Tile")
def _tile(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = node.value(0)
    shape, times = builder.file_shape(x), [int(n) for n in node.constant(1).ravel()]
    if len(times) != len(shape) or min(times, default=1) < 1:
        raise node.unsupported(f"repeats {times} of a value of shape {shape}")
    return _repeated(builder, x, shape, [n * k for n, k in zip(shape, times, strict=True)])


def _repeated(builder: GraphBuilder, x: fx.Node, shape: Sequence[int], final: Sequence[int]) -> fx.Node:
    """x in this shape, each of whose dimensions begins again until it has the final size."""
    x = builder.reshape(x, tuple(shape))
    for axis, (old, new) in enumerate(zip(shape, final, strict=True)):
        if old != new:
            builder.require_size(max(math.prod(final[: axis + 1]) * math.prod(shape[axis + 1 :]), 64 * new))
            x = _places(builder, x, axis, [i % old for i in range(new)])
    return x


@translates("Concat")
def _concat(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """Constants are added to zeros beside the values, which is the same for any number of images."""
    values = [value for value in node.inputs if isinstance(value, fx.Node)]
    axis = axis_of(node, node.attribute("axis", 1), builder.file_shape(values[0]))
    if axis == 0 or any(builder.is_bare(value) for value in values):
        values = [builder.bare(value) for value in values]
    dimension = axis + builder.is_bare(values[0])
    waiting, parts, before, constants = list(values), list[fx.Node](), 0, list[tuple[int, np.ndarray]]()
    place = 0
    for given in node.inputs:
        if isinstance(given, np.ndarray):
            size = given.shape[axis]
            constants.append((place, given))
            if parts:
                parts[-1] = _with_zeros(builder, parts[-1], dimension, 0, size)
            else:
                before += size
        else:
            value = waiting.pop(0)
            size = builder.shape(value)[dimension]
            parts.append(_with_zeros(builder, value, dimension, before if not parts else 0, 0))
        place += size
    joined = parts[0] if len(parts) == 1 else builder.call(torch.cat, parts, dimension)
    if not constants:
        return joined
    shape = builder.file_shape(joined)
    shift = np.zeros(shape if builder.is_bare(joined) else (1, *shape[1:]), np.result_type(*(c for _, c in constants)))
    for place, array in constants:
        shift[(slice(None),) * axis + (slice(place, place + array.shape[axis]),)] = array
    return builder.call(torch.add, joined, builder.constant(shift))


def _with_zeros(builder: GraphBuilder, x: fx.Node, dimension: int, before: int, after: int) -> fx.Node:
    if not before and not after:
        return x
    behind = len(builder.shape(x)) - 1 - dimension
    return builder.call(F.pad, x, (0, 0) * behind + (before, after))


@translates("DepthToSpace", "SpaceToDepth")
def _depth(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """Channels to blocks of positions, or back: a reshape, a change of order, and a reshape."""
    x, side = node.value(0), int(node.attribute("blocksize", 1))
    shape = builder.file_shape(x)
    if len(shape) != 4 or builder.is_bare(x) or side < 1:
        raise node.unsupported(f"a value of shape {shape}")
    batch, channels, height, width = shape
    if node.operation == "SpaceToDepth":
        parts = builder.reshape(x, (batch, channels, height // side, side, width // side, side))
        order, final = (0, 3, 5, 1, 2, 4), (batch, channels * side**2, height // side, width // side)
    else:
        column = node.attribute("mode", "DCR") == "DCR"
        rest = channels // side**2
        split = (side, side, rest) if column else (rest, side, side)
        parts = builder.reshape(x, (batch, *split, height, width))
        order = (0, 3, 4, 1, 5, 2) if column else (0, 1, 4, 2, 5, 3)
        final = (batch, rest, height * side, width * side)
    return builder.reshape(builder.method("permute", parts, *order), final)
