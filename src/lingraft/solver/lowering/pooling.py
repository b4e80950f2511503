"""Pooling, resizing, means and sums."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from lingraft.errors import LingraftError
from lingraft.model.activations.relu import RELU
from lingraft.model.operations.pooling import reduced, side_matrix
from lingraft.model.operations.weights import each
from lingraft.solver.lowering.building import Building, handles, outer
from lingraft.solver.lowering.weights import as_line, as_map, convolution
from lingraft.solver.nodes import Larger, Site


class _Windows:
    """The windows of a pooling over a map; what is (C, L) is a map (C, 1, L)."""

    def __init__(self, at: Building, call: fx.Node, x: fx.Node, kernel: Any, stride: Any, padding: Any):
        rank = len(at.shape(x)) - 1
        self.source = as_map(at, call.name, at.position[x])
        lead = (1,) * (2 - rank)
        self.kernel = (*lead, *each(kernel, rank))
        self.stride = (*lead, *each(stride or kernel, rank))
        self.before = [*(0 for _ in lead), *each(padding, rank)]
        self.sides = outer(at.nodes[self.source].shape)[1:]
        self.result = (*lead, *at.shape(call)[1:])

    def after(self, dilation: tuple[int, ...] = (1, 1)) -> list[int]:
        """Padding behind each side, such that as many windows fit as the result has, with ceil_mode or without."""
        reach = [
            (m - 1) * s + d * (k - 1) + 1
            for m, s, k, d in zip(self.result, self.stride, self.kernel, dilation, strict=True)
        ]
        return [max(0, r - n - b) for r, n, b in zip(reach, self.sides, self.before, strict=True)]


@handles("average pooling 1d", "average pooling 2d")
def _average(
    at: Building,
    call: fx.Node,
    x: fx.Node,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> int:
    """A convolution with equal weights; where windows have another divisor, their values are scaled after it."""
    windows = _Windows(at, call, x, kernel_size, stride, padding)
    channels = outer(at.nodes[windows.source].shape)[0]
    weight = torch.full((channels, 1, *windows.kernel), 1 / math.prod(windows.kernel), dtype=torch.float64)
    pads = (windows.before, windows.after())
    pooled = convolution(at, call.name, windows.source, weight, None, windows.stride, pads, (1, 1), channels)
    if ceil_mode or divisor_override or (any(windows.before) and not count_include_pad):
        ones = torch.ones(1, 1, *windows.sides, dtype=torch.float64)
        own = F.avg_pool2d(
            ones, windows.kernel, windows.stride, tuple(windows.before), ceil_mode, count_include_pad, divisor_override
        )
        (top, left), (bottom, right) = pads
        plain = F.conv2d(F.pad(ones, (left, right, top, bottom)), weight[:1], stride=windows.stride)
        plain = plain[..., : own.shape[2], : own.shape[3]]
        factor = at.inner_constant(own / plain, outer(at.nodes[pooled].shape))
        pooled = at.scale(call.name, pooled, factor, torch.zeros_like(factor))
    return as_line(at, call, pooled)


@handles("adaptive average pooling 1d", "adaptive average pooling 2d")
def _adaptive(at: Building, call: fx.Node, x: fx.Node, output_size: Any) -> int:
    sides, result = at.shape(x)[1:], at.shape(call)[1:]
    if any(n % m for n, m in zip(sides, result, strict=True)):
        return _over_sides(at, call, x, f"adaptive average pooling {len(sides)}d", output_size=output_size)
    kernel = tuple(n // m for n, m in zip(sides, result, strict=True))
    return _average(at, call, x, kernel, None, 0, False, True, None)


@handles("resizing")
def _resize(at: Building, call: fx.Node, x: fx.Node, *settings: Any) -> int:
    names = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    given = dict(zip(names, settings, strict=True))
    if given["mode"] in ("nearest", "nearest-exact"):
        moved = F.interpolate(at.numbered(at.position[x])[None], **given)[0]
        return at.gather(call.name, at.position[x], moved)
    return _over_sides(at, call, x, "resizing", **given)


def _over_sides(at: Building, call: fx.Node, x: fx.Node, operation: str, **settings: Any) -> int:
    """An operation on each channel by itself, as a matrix."""
    sides, shape = at.shape(x)[1:], at.shape(call)
    matrix = side_matrix(operation, sides, math.prod(shape[1:]), **settings)
    dims = list(range(1, len(shape)))
    return at.mix(call.name, at.position[x], dims, matrix, None, lambda result: result.reshape(shape))


@handles("mean")
def _mean(at: Building, call: fx.Node, x: fx.Node, dim: Any, keepdim: bool) -> int:
    return _reduce(at, call, x, dim, lambda count: 1 / count)


@handles("sum")
def _sum(at: Building, call: fx.Node, x: fx.Node, dim: Any, keepdim: bool) -> int:
    return _reduce(at, call, x, dim, lambda count: 1.0)


def _reduce(at: Building, call: fx.Node, x: fx.Node, dim: Any, weight: Callable[[int], float]) -> int:
    """The values along some dimensions, added up with the weight for so many."""
    own, shape = at.shape(x), at.shape(call)
    dims = reduced(dim, len(own) + 1)
    if 0 in dims:
        raise LingraftError(f"{at.title(call)} adds up the images of a batch. Leave out dimension 0.")
    count = math.prod(own[d - 1] for d in dims)
    matrix = torch.full((1, count), weight(count), dtype=torch.float64)
    inside = [d - 1 for d in dims]
    return at.mix(call.name, at.position[x], inside, matrix, None, lambda result: result.reshape(shape))


@handles("max pooling 1d", "max pooling 2d")
def _maximum(
    at: Building,
    call: fx.Node,
    x: fx.Node,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> int:
    """max(a, b) = b + relu(a − b), in a tournament over the window: exact, and split like any other neuron."""
    windows = _Windows(at, call, x, kernel_size, stride, padding)
    dilations = each(dilation, 2) if len(at.shape(x)) == 3 else (1, *each(dilation, 1))
    (top, left), (bottom, right) = windows.before, windows.after(dilations)
    numbered = at.numbered(windows.source)
    padded = F.pad(numbered, (left, right, top, bottom))[None]
    places = F.unfold(padded, windows.kernel, dilations, 0, windows.stride)
    sides = [
        (n - d * (k - 1) - 1) // s + 1
        for n, d, k, s in zip(padded.shape[2:], dilations, windows.kernel, windows.stride, strict=True)
    ]
    height, width = windows.result
    found = places.view(len(numbered), -1, *sides)[..., :height, :width]
    best = found.amax(1, keepdim=True)
    found = torch.where(found == 0, best, found)  # padding never wins: let it repeat a pixel of the window
    players = [at.gather(call.name, windows.source, found[:, i]) for i in range(found.shape[1])]
    round_ = 0
    while len(players) > 1:
        winners = []
        for i in range(0, len(players) - 1, 2):
            winners.append(_larger(at, f"{call.name}.{round_}.{i // 2}", players[i], players[i + 1]))
        players = winners + players[len(winners) * 2 :]
        round_ += 1
    return as_line(at, call, players[0])


def _larger(at: Building, name: str, a: int, b: int) -> int:
    shape = at.nodes[a].shape
    difference = at.sum(f"{name}.difference", [a, b], [1.0, -1.0])
    none = torch.zeros(shape).double()
    positive = at.add(Site(name, shape, [difference], RELU.name, none.bool(), none, none, public=False))
    return at.add(Larger(f"{name}.larger", shape, [b, positive], [1.0, 1.0]))
