"""Operations with weights: convolutions, linear layers, products with constant matrices, batch norm."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from lingraft.errors import LingraftError
from lingraft.model.operations.weights import around, each, padding_of
from lingraft.solver.lowering.building import Building, handles
from lingraft.solver.nodes import Convolution

#: Products of two values that a product of matrices may be made of.
MAX_PRODUCTS = 1 << 22


def as_map(at: Building, name: str, source: int) -> int:
    """A value of shape (C, L) as a map (C, 1, L); maps as they are."""
    numbered = at.numbered(source)
    return at.gather(name, source, numbered.unsqueeze(1)) if numbered.dim() == 2 else source


def as_line(at: Building, call: fx.Node, source: int) -> int:
    """The inverse of `as_map`, where the call gives (C, L)."""
    return at.gather(call.name, source, at.numbered(source).view(at.shape(call)))


@handles("convolution")
def _conv(
    at: Building,
    call: fx.Node,
    x: fx.Node,
    weight: Any,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    padding_mode: str,
) -> int:
    weight = at.constant(call, weight)
    rank = weight.dim() - 2
    before, after = padding_of(padding, tuple(weight.shape[2:]), dilation)
    source = at.position[x]
    if padding_mode != "zeros" and any(before + after):
        moved = F.pad(at.numbered(source)[None], around(before, after), mode=padding_mode)[0]
        source, before, after = at.gather(call.name, source, moved), [0] * rank, [0] * rank
    steps, dilations = each(stride, rank), each(dilation, rank)
    if rank == 1:
        source, weight = as_map(at, call.name, source), weight.unsqueeze(2)
        before, after, steps, dilations = [0, *before], [0, *after], (1, *steps), (1, *dilations)
    bias = None if bias is None else at.constant(call, bias)
    result = convolution(at, call.name, source, weight, bias, steps, (before, after), dilations, groups)
    return as_line(at, call, result) if rank == 1 else result


def convolution(
    at: Building,
    name: str,
    source: int,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, ...],
    padding: tuple[list[int], list[int]],
    dilation: tuple[int, ...],
    groups: int,
) -> int:
    """A convolution of a map; `padding` before and after each side."""
    (top, left), (bottom, right) = padding
    if source in at.padded:  # zero padding before a convolution is the convolution's own padding
        source, extra = at.padded[source]
        top, left, bottom, right = (a + b for a, b in zip((top, left, bottom, right), extra, strict=True))
    here = at.nodes[source].shape
    out, per_group, kh, kw = weight.shape
    full = weight.new_zeros(out, here[2], kh, kw)  # groups become zeros: one kind of convolution is enough
    for g in range(groups):
        o, i = slice(g * out // groups, (g + 1) * out // groups), slice(g * per_group, (g + 1) * per_group)
        full[o, i] = weight[o]
    matrix = full.double().permute(0, 2, 3, 1).reshape(out, -1).contiguous()
    (sy, sx), (dy, dx) = stride, dilation
    height = (here[0] + top + bottom - dy * (kh - 1) - 1) // sy + 1
    width = (here[1] + left + right - dx * (kw - 1) - 1) // sx + 1
    shift = torch.zeros(out) if bias is None else bias
    pads = (top, left, bottom, right)
    return at.add(
        Convolution(
            name, (height, width, out), [source], here, matrix, shift.double(), (kh, kw), (sy, sx), pads, (dy, dx)
        )
    )


@handles("transposed convolution")
def _conv_back(
    at: Building,
    call: fx.Node,
    x: fx.Node,
    weight: Any,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> int:
    """A convolution with the kernel turned around, of the values with zeros between them and around them."""
    weight = at.constant(call, weight)
    rank = weight.dim() - 2
    steps, dilations, cut, more = (each(n, rank) for n in (stride, dilation, padding, output_padding))
    source = as_map(at, call.name, at.position[x])
    if rank == 1:
        weight, steps, dilations, cut, more = weight.unsqueeze(2), (1, *steps), (1, *dilations), (0, *cut), (0, *more)
    numbered = at.numbered(source)
    channels, *sides = numbered.shape
    apart = numbered.new_zeros(channels, *[(n - 1) * s + 1 for n, s in zip(sides, steps, strict=True)])
    apart[:, :: steps[0], :: steps[1]] = numbered
    before = [d * (k - 1) - p for d, k, p in zip(dilations, weight.shape[2:], cut, strict=True)]
    after = [n + m for n, m in zip(before, more, strict=True)]
    spread = at.gather(call.name, source, F.pad(apart, around(before, after)))
    turned = torch.cat([part.transpose(0, 1) for part in weight.flip(2, 3).chunk(groups)])
    bias = None if bias is None else at.constant(call, bias)
    result = convolution(at, call.name, spread, turned, bias, (1, 1), ([0, 0], [0, 0]), dilations, groups)
    return as_line(at, call, result) if rank == 1 else result


@handles("linear")
def _linear(at: Building, call: fx.Node, x: fx.Node, weight: Any, bias: Tensor | None) -> int:
    last = len(at.shape(x)) - 1
    bias = None if bias is None else at.constant(call, bias)
    return at.mix(call.name, at.position[x], [last], at.constant(call, weight), bias, lambda result: result)


@handles("matrix product")
def _product(at: Building, call: fx.Node, left: Any, right: Any) -> int:
    if at.depends(left) and at.depends(right):
        return _product_of_values(at, call, left, right)
    value, matrix = (left, at.constant(call, right)) if at.depends(left) else (right, at.constant(call, left))
    rank, source = len(at.shape(value)), at.position[value]
    if matrix.dim() != 2:
        raise LingraftError(f"{at.title(call)} multiplies by a constant of shape {tuple(matrix.shape)}. Use a matrix.")
    if value is left:
        return at.mix(call.name, source, [rank - 1], matrix.t(), None, lambda result: result)
    if rank == 1:
        raise LingraftError(f"{at.title(call)} multiplies the images of a batch with each other. Write x @ matrix.t().")
    return at.mix(call.name, source, [rank - 2], matrix, None, lambda result: result.transpose(-1, -2))


def _product_of_values(at: Building, call: fx.Node, left: fx.Node, right: fx.Node) -> int:
    """(…, n, k) times (…, k, m): products (…, n, k, m) of single values, added up along k."""
    ranks = [len(at.shape(value)) for value in (left, right)]
    if ranks[0] != ranks[1] or ranks[0] < 2:
        raise LingraftError(
            f"{at.title(call)} multiplies values of {ranks[0]} and {ranks[1]} dimensions besides the batch. Give both"
            " as many, and at least two."
        )
    numbers = [at.numbered(at.position[value], at.shape(value)) for value in (left, right)]
    moved = torch.broadcast_tensors(numbers[0].unsqueeze(-1), numbers[1].unsqueeze(-3))
    if moved[0].numel() > MAX_PRODUCTS:
        raise LingraftError(f"{at.title(call)} takes {moved[0].numel():,} products of values, which is too many.")
    one, other = (
        at.gather(call.name, at.position[value], places) for value, places in zip((left, right), moved, strict=True)
    )
    products = at.product(call.name, one, other)
    ones = torch.ones(1, moved[0].shape[-2])
    return at.mix(call.name, products, [moved[0].dim() - 2], ones, None, lambda result: result.squeeze(-1))


@handles("batch norm")
def _batch_norm(
    at: Building,
    call: fx.Node,
    x: fx.Node,
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> int:
    if mean is None or variance is None:
        raise LingraftError(f"{at.title(call)} has no running statistics. Use track_running_stats=True.")
    if training:
        raise LingraftError(f"{at.title(call)} normalizes by the batch. Pass training=self.training.")
    scale = (at.constant(call, variance).double() + eps).rsqrt()
    if weight is not None:
        scale = scale * at.constant(call, weight).double()
    shift = -at.constant(call, mean).double() * scale
    if bias is not None:
        shift = shift + at.constant(call, bias).double()
    shape = at.shape(x)
    view = (1, -1) + (1,) * (len(shape) - 1)
    return at.scale(call.name, at.position[x], *(at.inner_constant(t.view(view), shape) for t in (scale, shift)))
