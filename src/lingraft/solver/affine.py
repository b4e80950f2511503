"""Every value of a network as an affine function of the image and of the taps before it, node by node from the image.

With x = center + d, and h the values of the taps of the sites before,

    value = constant + Σ weight·(d or h),        within `error` of the real one

Over a region everything but the taps is linear, so nothing is approximated here but by rounding, which `error` pays
for. The values at one place of a map look at the same pixels and taps: a node with C channels is a list of entries, a
place and a column (pixels first, then taps) with C weights each, and a convolution is one product of these weights with
each position of its kernel.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.intervals import UNDERFLOW, fan_in, share
from lingraft.solver.nodes import Convolution, Dense, Gather, Node, Scale, Shape, Sum

#: Weights that are handled at once: 1 MB, about a core's cache.
PIECE = 2**17

#: Weights of one node, and numbers in a table of places and columns, above which rows pass back instead: 512 MiB.
LIMIT = 2**26


class TooLarge(Exception):
    """The values of a node have too many weights to be kept."""


@dataclass
class Affine:
    """Entries `place`, `column` (E,) with `weights` (E, C), sorted where `ordered`, and one of each (1, *shape):

    the `constant`, how much the function may be wrong (`error`), and a bound of the sum of the absolute values of what
    is added up (`mass`). `columns` is the number of pixels and taps so far. With `index`, the entries are those of the
    node before a Gather, which only a Dense node may use without moving them.
    """

    place: Tensor
    column: Tensor
    weights: Tensor
    constant: Tensor
    error: Tensor
    mass: Tensor
    columns: int
    ordered: bool = True
    index: Tensor | None = None
    places: int = 1

    def starts(self) -> Tensor:
        """First entry of each place, and the end (places + 1,), where ordered."""
        return torch.searchsorted(self.place, torch.arange(self.places + 1))


def of_image(center: Tensor, radius: Tensor) -> Affine:
    """The image itself (inner shape), center + d with |d| ≤ radius."""
    size, channels = center.numel(), center.shape[-1]
    _require(size * channels)
    places = size // channels
    column = torch.arange(size)
    weights = torch.eye(channels, dtype=torch.float64).repeat(places, 1)
    constant, zero = center[None], torch.zeros_like(center[None])
    mass = (center.abs() + radius)[None]
    return Affine(column // channels, column, weights, constant, zero, mass, size, places=places)


def products(node: Node, inputs: list[Affine]) -> float:
    """About how many products `through` computes."""
    match node:
        case Convolution():
            (kh, kw), (sy, sx) = node.kernel, node.stride
            return inputs[0].weights.numel() * node.shape[2] * (kh * kw) / (sy * sx)
        case Dense():
            return float(inputs[0].weights.numel() * node.shape[0])
    return float(sum(x.weights.numel() for x in inputs))


def through(
    node: Node,
    inputs: list[Affine],
    shapes: list[Shape],
    visible: Tensor | None = None,
    budget: Budget = UNLIMITED,
) -> Affine:
    """The values of a linear node from those of its inputs, which have these shapes.

    If only some are `visible` (the node's shape), a convolution computes no weights where nothing is.

    Of W·y + b, where y is known within e, W·e is passed on, and γ·(|W|·mass + |b|) is lost in sums: of constants, and
    of weights times whatever d or h may be.
    """
    loss = share(fan_in(node))
    zero = node.forward(*[torch.zeros_like(x.constant) for x in inputs]).abs()
    mass = node.spread(*[x.mass for x in inputs]) + zero
    error = node.spread(*[x.error for x in inputs]) * (1 + loss) + loss * mass + UNDERFLOW
    rest = node.forward(*[x.constant for x in inputs]), error, mass, max(x.columns for x in inputs)
    match node:
        case Gather():
            x = inputs[0]
            index = node.index if x.index is None else torch.where(node.index < 0, -1, x.index[node.index.clamp(min=0)])
            return Affine(x.place, x.column, x.weights, *rest, x.ordered, index, x.places)
        case Dense():
            return _dense(node, inputs[0], rest, budget)
    inputs = [x if x.index is None else settled(x, shape, budget) for x, shape in zip(inputs, shapes, strict=True)]
    match node:
        case Convolution():
            return _convolved(node, inputs[0], rest, visible, budget)
        case Scale():
            x = inputs[0]
            weights = _scaled(x, node.weight, torch.empty_like(x.weights))
            return Affine(x.place, x.column, weights, *rest, x.ordered, places=x.places)
        case Sum():
            out, keys = _empty([(x, torch.arange(len(x.place)), x.place) for x in inputs], node.shape, rest, budget)
            for x, key, sign in zip(inputs, keys, node.signs, strict=True):
                budget.check_time()
                if x.ordered and len(x.place) == len(out.place):  # all there are
                    out.weights.add_(x.weights, alpha=sign)
                else:
                    out.weights.index_add_(0, key, x.weights, alpha=sign)
            return out
    raise AssertionError(f"it is not known how {type(node).__name__} is affine")


def through_site(x: Affine, slope: Tensor, intercept: Tensor, taps: Tensor, size: Tensor, first: int) -> Affine:
    """slope·z + intercept of every neuron, and a column from `first` on for each of the `taps` (flat indices).

    Slopes and intercepts of taps are 0; `size` (taps,) bounds what their values can be.
    """
    channels, count, loss = x.weights.shape[1], len(x.place), share(1)
    _require((count + len(taps)) * channels)
    weights = torch.zeros(count + len(taps), channels, dtype=torch.float64)
    _scaled(x, slope, weights[:count])
    weights[torch.arange(count, count + len(taps)), taps % channels] = 1
    constant = slope * x.constant + intercept
    mass = slope.abs() * x.mass + intercept.abs()
    error = slope.abs() * x.error * (1 + loss) + loss * mass + UNDERFLOW
    mass.view(-1)[taps] = size
    return Affine(
        torch.cat([x.place, taps // channels]),
        torch.cat([x.column, first + torch.arange(len(taps))]),
        weights,
        constant,
        error,
        mass,
        first + len(taps),
        ordered=not len(taps),
        places=x.places,
    )


def settled(x: Affine, shape: Shape, budget: Budget = UNLIMITED) -> Affine:
    """The same with the entries of the node itself, of that shape, in order."""
    x = x if x.ordered else _ordered(x)
    if x.index is None:
        return x
    channels, before = shape[-1], x.weights.shape[1]
    starts = x.starts()
    to = (x.index >= 0).nonzero().flatten()
    place, channel = x.index[to] // before, x.index[to] % before
    each = (starts[1:] - starts[:-1])[place]
    _require(int(each.sum()))
    entry, owner = ranges(starts[place], each)
    budget.check_time()
    goal = to[owner]
    out, keys = _empty([(x, entry, goal // channels)], shape, (x.constant, x.error, x.mass, x.columns), budget)
    out.weights[keys[0], goal % channels] = x.weights[entry, channel[owner]]
    return out


def _ordered(x: Affine) -> Affine:
    order = (x.place * x.columns + x.column).argsort()
    return Affine(
        x.place[order],
        x.column[order],
        x.weights[order],
        x.constant,
        x.error,
        x.mass,
        x.columns,
        True,
        x.index,
        x.places,
    )


Rest = tuple[Tensor, Tensor, Tensor, int]


def _empty(
    parts: list[tuple[Affine, Tensor, Tensor]], shape: Shape, rest: Rest, budget: Budget
) -> tuple[Affine, list[Tensor]]:
    """An Affine without weights for entries that come from others, and where each goes.

    Each part is what they come from, the numbers (n,) of its entries, and the places (n, …) these go to; from −1, which
    is nowhere, they go behind the last entry.
    """
    channels, columns = shape[-1], rest[3]
    places = 1 if len(shape) == 1 else int(torch.tensor(shape[:-1]).prod())
    _require(places * columns)
    table = torch.zeros(places * columns + 1, dtype=torch.bool)
    wanted = [_keys(place, x.column[entry], columns) for x, entry, place in parts]
    for keys in wanted:
        budget.check_time()  # these tables may have millions of entries
        table[keys] = True
    table[-1] = False
    found = table.nonzero().flatten()
    _require(len(found) * channels)
    budget.check_time()
    number = torch.empty(places * columns + 1, dtype=torch.int32)
    number[found] = torch.arange(len(found), dtype=torch.int32)
    number[-1] = len(found)
    budget.check_time()
    weights = torch.zeros(len(found) + 1, channels, dtype=torch.float64)[:-1]
    out = Affine(found // columns, found % columns, weights, *rest, places=places)
    return out, [number[keys].long() for keys in wanted]  # which index_add_ takes twice as fast


def _keys(place: Tensor, column: Tensor, columns: int) -> Tensor:
    """place·columns + column, and −1 for a place of −1."""
    if place.dim() == 1:
        return place * columns + column
    return torch.where(place < 0, -1, place * columns + column[:, None])


def _convolved(node: Convolution, x: Affine, rest: Rest, visible: Tensor | None, budget: Budget) -> Affine:
    """Entries whose positions leave the same remainders of the strides meet the same positions of the kernel."""
    (sy, sx), channels = node.stride, node.shape[2]
    y, across = x.place // node.source[1] + node.padding[0], x.place % node.source[1] + node.padding[1]
    weight = node.matrix.view(channels, *node.kernel, -1)
    parts, kernels = [], []
    for remainder in product(range(sy), range(sx)):
        met = [
            (i, j)
            for i, j in product(*map(range, node.kernel))
            if (i * node.dilation[0] % sy, j * node.dilation[1] % sx) == remainder
        ]
        if not met:
            continue
        entry = ((y % sy == remainder[0]) & (across % sx == remainder[1])).nonzero().flatten()
        steps = torch.tensor(met) * torch.tensor(node.dilation)
        row = (y[entry, None] - steps[:, 0]).div(sy, rounding_mode="floor")
        column = (across[entry, None] - steps[:, 1]).div(sx, rounding_mode="floor")
        inside = (row >= 0) & (row < node.shape[0]) & (column >= 0) & (column < node.shape[1])
        place = torch.where(inside, row * node.shape[1] + column, -1)
        if visible is not None:
            place = torch.where(inside & visible.any(2).view(-1)[place], place, -1)
            used = (place >= 0).any(1)
            entry, place = entry[used], place[used]
        parts.append((x, entry, place))
        kernels.append(torch.cat([weight[:, i, j].t() for i, j in met], dim=1))
    out, keys = _empty(parts, node.shape, rest, budget)
    weights = out.weights.as_strided((len(out.place) + 1, channels), (channels, 1))  # the last is for what goes nowhere
    for (_, entry, _), key, kernel in zip(parts, keys, kernels, strict=True):
        some = max(1, PIECE // max(kernel.shape))
        for at, to in zip(entry.split(some), key.split(some), strict=True):
            weights.index_add_(0, to.flatten(), (x.weights.index_select(0, at) @ kernel).view(-1, channels))
    return out


def _dense(node: Dense, x: Affine, rest: Rest, budget: Budget) -> Affine:
    channels = x.weights.shape[1]
    weight = node.weight if x.index is None else _unmoved(node.weight, x.index, x.places * channels)
    if x.places == 1:
        return Affine(x.place, x.column, x.weights @ weight.t(), *rest)  # in order: of one place, taps are the last
    entry = torch.arange(len(x.place)) if x.ordered else x.place.argsort(stable=True)
    out, keys = _empty([(x, entry, torch.zeros_like(entry))], node.shape, rest, budget)
    ends = x.place.bincount(minlength=x.places).tolist()
    for place, (at, to) in enumerate(zip(entry.split(ends), keys[0].split(ends), strict=True)):
        kernel = weight[:, place * channels : (place + 1) * channels].t()
        out.weights.index_add_(0, to, x.weights.index_select(0, at) @ kernel)
    return out


def _unmoved(weight: Tensor, index: Tensor, size: int) -> Tensor:
    """Weights (out, size) on what is there before a Gather with this index."""
    used = index >= 0
    if len(index) == size and bool(used.all()):
        back = torch.full((size,), -1).index_copy_(0, index, torch.arange(size))
        if bool((back >= 0).all()):  # a permutation, as nearly always
            return weight.index_select(1, back)
    return weight.new_zeros(len(weight), size).index_add_(1, index[used], weight[:, used])


def _scaled(x: Affine, by: Tensor, out: Tensor) -> Tensor:
    """Weights times `by` (the node's shape), written to `out`."""
    each = by.reshape(x.places, -1)
    for first, last in _pieces(x):
        torch.mul(x.weights[first:last], each[x.place[first:last]], out=out[first:last])
    return out


def spans(x: Affine, middle: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Center and radius (1, *shape) of the values where each column lies in middle ± half (columns,).

    That also says how much is added up at most: the mass becomes as small as this.
    """
    center = x.constant.reshape(x.places, -1).clone()
    radius, mass = torch.zeros_like(center), center.abs()
    for first, last in _pieces(x):
        place, column, weights = x.place[first:last], x.column[first:last], x.weights[first:last]
        off = middle[column].nonzero().flatten()
        if len(off):
            moved = weights[off] * middle[column[off], None]
            center.index_add_(0, place[off], moved)
            mass.index_add_(0, place[off], moved.abs_())
        radius.index_add_(0, place, weights.abs().mul_(half[column, None]))
    shape = x.constant.shape
    x.mass = torch.minimum(x.mass, (mass + radius).view(shape) * (1 + 2.0**-20))  # which its own sums do not exceed
    return center.view(shape), radius.view(shape)


def _pieces(x: Affine) -> Iterator[tuple[int, int]]:
    some = max(1, PIECE // x.weights.shape[1])
    for first in range(0, len(x.place), some):
        yield first, min(first + some, len(x.place))


def ranges(first: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers first, first + 1, … of each range one after the other, and the range that each belongs to."""
    owner = torch.arange(len(first)).repeat_interleave(length)
    start = length.cumsum(0) - length
    return torch.arange(len(owner)) - start[owner] + first[owner], owner


def _require(size: int) -> None:
    if size > LIMIT:
        raise TooLarge
