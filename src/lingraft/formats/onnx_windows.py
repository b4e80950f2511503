"""ONNX operations that look at windows: convolution, pooling, padding, resizing."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn

from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.onnx_node import OnnxNode
from lingraft.formats.onnx_translators import translates, with_tensors


def _maps(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """The first input, which must be maps (N, C, L) or (N, C, H, W)."""
    x = node.value(0)
    if builder.is_bare(x) or len(builder.shape(x)) not in (3, 4):
        raise node.unsupported(f"a value of shape {builder.file_shape(x)}, which is not one or two-dimensional maps,")
    return x


def _padding(
    node: OnnxNode, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Zeros before and after each spatial dimension."""
    rank = len(sizes)
    pads = list(node.attribute("pads", [0] * (2 * rank)))
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        totals = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(sizes, strides, reach, strict=True)]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return (small, large) if mode == "SAME_UPPER" else (large, small)
    if mode == "VALID":
        return [0] * rank, [0] * rank
    if len(pads) != 2 * rank or min(pads) < 0:
        raise node.unsupported(f"padding {pads}")
    return pads[:rank], pads[rank:]


def _pad_zeros(builder: GraphBuilder, x: fx.Node, before: Sequence[int], after: Sequence[int]) -> fx.Node:
    """Zeros around the last dimensions of x."""
    if not any(before) and not any(after):
        return x
    # torch counts from the last dimension
    widths = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    if len(before) == 2:
        left, right, top, bottom = widths
        return builder.layer(nn.ZeroPad2d((left, right, top, bottom)), x)
    return builder.call(F.pad, x, tuple(widths))


def _pad_edges(builder: GraphBuilder, x: fx.Node, before: Sequence[int], after: Sequence[int], mode: str) -> fx.Node:
    """What is near its edges, repeated around the last dimensions of maps x; `mode` as in torch."""
    widths = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return builder.call(F.pad, x, tuple(widths), mode)


# Convolution


@translates("Conv")
def _conv(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = _maps(builder, node)
    weight, bias = builder.tensor(node.constant(1)), node.optional_constant(2)
    rank = len(builder.shape(x)) - 2
    kernel = list(weight.shape[2:])
    if len(kernel) != rank:
        raise node.unsupported(f"a convolution over {len(kernel)} dimensions")
    node.require("kernel_shape", kernel, kernel)
    strides = list(node.attribute("strides", [1] * rank))
    dilations = list(node.attribute("dilations", [1] * rank))
    before, after = _padding(node, builder.shape(x)[2:], kernel, strides, dilations)
    if before != after:
        x = _pad_zeros(builder, x, before, after)
        before = [0] * rank
    groups = node.attribute("group", 1)
    kind: Any = nn.Conv2d if rank == 2 else nn.Conv1d
    layer = kind(
        weight.shape[1] * groups,
        weight.shape[0],
        tuple(kernel),
        tuple(strides),
        tuple(before),
        tuple(dilations),
        groups,
        bias is not None,
        device="meta",
    )
    return builder.layer(with_tensors(layer, weight=weight, bias=None if bias is None else builder.tensor(bias)), x)


@translates("ConvTranspose")
def _conv_transpose(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = _maps(builder, node)
    weight, bias = builder.tensor(node.constant(1)), node.optional_constant(2)
    rank, groups = len(builder.shape(x)) - 2, node.attribute("group", 1)
    kernel = list(weight.shape[2:])
    if len(kernel) != rank:
        raise node.unsupported(f"a convolution over {len(kernel)} dimensions")
    node.require("kernel_shape", kernel, kernel)
    strides = list(node.attribute("strides", [1] * rank))
    dilations = list(node.attribute("dilations", [1] * rank))
    more = list(node.attribute("output_padding", [0] * rank))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + r + m for n, s, r, m in zip(builder.shape(x)[2:], strides, reach, more, strict=True)]
    before, after = _left_out(node, builder.shape(x)[2:], strides, full)
    kind: Any = nn.ConvTranspose2d if rank == 2 else nn.ConvTranspose1d
    layer = kind(
        weight.shape[0],
        weight.shape[1] * groups,
        tuple(kernel),
        tuple(strides),
        tuple(before) if before == after else (0,) * rank,
        tuple(more),
        groups,
        bias is not None,
        tuple(dilations),
        device="meta",
    )
    maps = builder.layer(with_tensors(layer, weight=weight, bias=None if bias is None else builder.tensor(bias)), x)
    if before == after:
        return maps
    inner = [slice(b, n - a) for b, a, n in zip(before, after, full, strict=True)]
    return builder.call(operator.getitem, maps, (slice(None), slice(None), *inner))


def _left_out(
    node: OnnxNode, sizes: Sequence[int], strides: Sequence[int], full: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What a transposed convolution leaves out at both ends of each side, of which `full` are all its values."""
    rank, mode = len(sizes), node.attribute("auto_pad", "NOTSET")
    pads = list(node.attribute("pads", [0] * (2 * rank)))
    wanted: list[int] = list(node.attribute("output_shape", []))
    if mode in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    if wanted:
        totals = [n - m for n, m in zip(full, wanted[-rank:], strict=True)]
        if min(totals) < 0:
            raise node.unsupported(f"an output of the sides {wanted}, which is more than it computes,")
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return (small, large) if mode == "SAME_UPPER" else (large, small)
    if mode == "VALID":
        pads = [0] * (2 * rank)
    if len(pads) != 2 * rank or min(pads) < 0:
        raise node.unsupported(f"padding {pads}")
    return pads[:rank], pads[rank:]


# Pooling


@translates("MaxPool", "AveragePool")
def _pool(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = _maps(builder, node)
    sizes = builder.shape(x)[2:]
    rank = len(sizes)
    kernel: Any = tuple(node.attribute("kernel_shape", ()))
    if len(kernel) != rank:
        raise node.unsupported(f"windows of {kernel} on maps of {sizes}")
    strides: Any = tuple(node.attribute("strides", (1,) * rank))
    dilations: Any = tuple(node.attribute("dilations", (1,) * rank))
    ceil = bool(node.attribute("ceil_mode", 0))
    before, after = _padding(node, sizes, kernel, strides, dilations)
    padding: Any = tuple(before)
    too_wide = before != after or any(2 * b > k for b, k in zip(before, kernel, strict=True))
    if node.operation == "MaxPool":
        node.require("storage_order", 0, 0)
        if too_wide:
            if (
                ceil
                or max(dilations) > 1
                or any(n >= k for pads in (before, after) for n, k in zip(pads, kernel, strict=True))
            ):
                raise node.unsupported(f"padding {before} and {after}")
            # a window that reaches beyond an edge has the edge in it: repeating that changes no maximum
            x = _pad_edges(builder, x, before, after, "replicate")
            padding = (0,) * rank
        largest: Any = nn.MaxPool2d if rank == 2 else nn.MaxPool1d
        return builder.layer(largest(kernel, strides, padding, dilations, ceil_mode=ceil), x)
    count_padding = bool(node.attribute("count_include_pad", 0))
    if any(d != 1 for d in dilations):
        raise node.unsupported(f"dilations = {dilations}")
    average: Any = nn.AvgPool2d if rank == 2 else nn.AvgPool1d
    if not too_wide:
        return builder.layer(average(kernel, strides, padding, ceil, count_padding), x)
    if ceil:
        raise node.unsupported(f"padding {before} and {after}")
    means = builder.layer(average(kernel, strides), _pad_zeros(builder, x, before, after))
    if count_padding:
        return means
    widths = list(zip(before, after, strict=True))
    inside = torch.from_numpy(np.pad(np.ones((1, 1, *sizes)), [(0, 0), (0, 0), *widths]))
    counts = (average(kernel, strides)(inside) * math.prod(kernel)).round()
    if not bool((counts > 0).all()):
        raise node.unsupported(f"padding {before} and {after}")
    sums = builder.call(torch.mul, means, builder.constant(np.array(float(math.prod(kernel)))))
    return builder.call(torch.div, sums, builder.constant(counts.numpy()))


@translates("GlobalAveragePool")
def _global_average_pool(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = _maps(builder, node)
    return builder.layer(nn.AdaptiveAvgPool2d(1) if len(builder.shape(x)) == 4 else nn.AdaptiveAvgPool1d(1), x)


@translates("GlobalMaxPool")
def _global_max_pool(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x = _maps(builder, node)
    sizes: Any = builder.shape(x)[2:]
    return builder.layer(nn.MaxPool2d(sizes) if len(sizes) == 2 else nn.MaxPool1d(sizes), x)


# Padding and resizing


@translates("Pad")
def _pad(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    mode = node.attribute("mode", "constant")
    x = node.value(0)
    rank = len(builder.file_shape(x))
    pads = node.integers("pads", 1) or []
    fill = node.optional_constant(2)
    value = float(node.attribute("value", 0.0) if fill is None else fill.item())
    axes = node.optional_constant(3)
    where = list(range(rank)) if axes is None else [int(a) % rank for a in axes.ravel()]
    if len(pads) != 2 * len(where) or min(pads, default=0) < 0:
        raise node.unsupported(f"pads = {pads}")
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(where):
        before[axis], after[axis] = pads[position], pads[position + len(where)]
    if builder.is_bare(x):
        before, after, rank = [0, *before], [0, *after], rank + 1
    elif before[0] or after[0]:
        raise node.unsupported("padding of the batch dimension")
    first = next((i for i in range(rank) if before[i] or after[i]), rank)
    if mode != "constant" and first < rank:
        # torch repeats what is near the edges of one and two-dimensional maps
        if mode not in ("reflect", "edge") or rank not in (3, 4) or first < 2:
            raise node.unsupported(f"mode = {mode} with pads = {pads}")
        return _pad_edges(builder, x, before[2:], after[2:], "reflect" if mode == "reflect" else "replicate")
    if value == 0:
        first = rank - 2 if rank == 4 and first == rank - 1 else first
        return _pad_zeros(builder, x, before[first:], after[first:])
    widths = [n for pair in zip(reversed(before[first:]), reversed(after[first:]), strict=True) for n in pair]
    return builder.call(F.pad, x, tuple(widths), "constant", value) if widths else x


@translates("Upsample")
def _upsample(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """The older name of Resize, which counts from the corners of pixels."""
    mode = node.attribute("mode", "nearest")
    given = node.attribute("scales", None)
    scales = node.constant(1).ravel() if given is None else given
    return _resized(builder, node, [float(s) for s in scales], None, mode, "asymmetric", "floor")


@translates("Resize")
def _resize(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    mode = node.attribute("mode", "nearest")
    if node.opset < 11:
        return _resized(builder, node, [float(s) for s in node.constant(1).ravel()], None, mode, "asymmetric", "floor")
    x = node.value(0)
    where = node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    node.require("exclude_outside", 0, 0)
    node.require("antialias", 0, 0)
    node.require("keep_aspect_ratio_policy", "stretch", "stretch")
    for name, unused in (("cubic_coeff_a", -0.75), ("extrapolation_value", 0.0)):
        node.attribute(name, unused)
    rank = len(builder.file_shape(x))
    axes = [a % rank for a in node.attribute("axes", list(range(rank)))]
    scales, sizes = (None if a is None or not a.size else a.ravel() for a in map(node.optional_constant, (2, 3)))
    factors, final = [1.0] * rank, list(builder.file_shape(x))
    for place, axis in enumerate(axes):
        if sizes is not None:
            final[axis] = int(sizes[place])
        elif scales is not None:
            factors[axis] = float(scales[place])
    return _resized(builder, node, None if sizes is not None else factors, final, mode, where, rounding)


def _resized(
    builder: GraphBuilder,
    node: OnnxNode,
    scales: list[float] | None,
    sizes: list[int] | None,
    mode: str,
    where: str,
    rounding: str,
) -> fx.Node:
    """Maps of other sides, which are given, or by what they are multiplied."""
    x = _maps(builder, node)
    old = builder.shape(x)
    new = list(old)
    if scales is not None:
        if len(scales) != len(old) or not all(0 < s < 1 << 16 for s in scales):
            raise node.unsupported(f"scales {scales}")
        new = [math.floor(n * s) for n, s in zip(old, scales, strict=True)]
        if any(n * s != m for n, s, m in zip(old, scales, new, strict=True)):
            raise node.unsupported(f"scales {scales} of the shape {old}, which give no whole numbers,")
    elif sizes is not None:
        new = [*old[:1], *sizes[1:]]
        if sizes[0] not in (1, old[0]):
            raise node.unsupported("resizing of the batch dimension")
    if new[:2] != list(old[:2]) or min(new) < 1:
        raise node.unsupported(f"a change of the shape {old} to {tuple(new)}")
    builder.require_size(math.prod(new))
    sides: Any = tuple(new[2:])
    if mode == "nearest":
        whole = all(m % n == 0 for n, m in zip(old[2:], sides, strict=True))
        usual = where == "asymmetric" and rounding == "floor"
        # by whole factors, the middle of a pixel is in the same one either way
        if not usual and not (whole and where in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round")):
            raise node.unsupported(f"the nearest value by {where} and {rounding}")
        return builder.layer(nn.Upsample(sides, mode="nearest"), x)
    aligned = where == "align_corners"
    if mode != "linear" or not (aligned or where in ("half_pixel", "pytorch_half_pixel")):
        raise node.unsupported(f"resizing by {mode} and {where}")
    if where == "pytorch_half_pixel" and min(sides) == 1:
        raise node.unsupported("resizing to one pixel")
    kind = "bilinear" if len(sides) == 2 else "linear"
    return builder.layer(nn.Upsample(sides, mode=kind, align_corners=aligned), x)
