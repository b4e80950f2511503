"""CROWN over taps: bounds of affine functions of the image and of taps, in which each tap is replaced by a line.

This is the relaxation of `crown.py`, with everything linear done beforehand. A value is q·h + p·d + c, and the taps of
the last site, which are z = Q h + P d + r within their loss, give

    λ = [q]₊·slope below + [q]₋·slope above,    c += [q]₊·intercept below + [q]₋·intercept above + λ·r − |λ|·loss

and λQ, λP to be added for the taps and pixels before, until only d is left, whose size is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from scipy.sparse import csr_array
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.affine import Affine, ranges
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.matrix import csr, turned

#: Coefficients that are substituted at once: 32 MB.
CHUNK = 2**22

#: Sparse products of a few hundred columns in float64 run at about a quarter of a dense product's rate.
SPARSE_BELOW = 0.25

#: Products that are as much work as finding the place of one entry.
INDEXING = 300


@dataclass
class TapRows:
    """The taps `index` (T,) of one site, whose columns begin at `first`, as affine functions of the columns before.

    Those of tap t are `column` and `value` from start[t] to start[t + 1]; its constant is `r`, and `loss` what rounding
    may have taken from all that, and takes from sums of it. `lines` are those of the taps, (T,) each.
    """

    index: Tensor
    first: int
    start: Tensor
    column: Tensor
    value: Tensor
    r: Tensor
    loss: Tensor
    lines: Lines

    @property
    def cost(self) -> float:
        """Products of `back` with a column, counting those of dense matrices."""
        return min(len(self.value) / SPARSE_BELOW, float(len(self.index) * self.first))

    @cached_property
    def back(self) -> Tensor:
        """The weights (columns before, T), dense or sparse."""
        shape = len(self.index), self.first
        rows = csr_array((self.value.numpy(), self.column.numpy(), self.start.numpy()), shape=shape)
        if rows.nnz >= SPARSE_BELOW * shape[0] * shape[1]:
            return torch.from_numpy(rows.toarray()).t()
        back = turned(rows)
        return csr(*map(torch.from_numpy, (back.indptr, back.indices, back.data)), back.shape)

    def relaxed(self, a: Tensor, constant: Tensor, some: Tensor | slice) -> Tensor:
        """λ (S, B) for coefficients (S, B) of some taps; what is constant is added to `constant` (B,), in place."""
        below_slope, below, above_slope, above = (line[some] for line in self.lines)
        positive = a.clamp(min=0)
        negative = a - positive
        slope = (positive * below_slope[:, None]).addcmul_(negative, above_slope[:, None])
        constant.addmv_(positive.t(), below).addmv_(negative.t(), above)
        constant.addmv_(slope.t(), self.r[some]).addmv_(slope.abs().t(), self.loss[some], alpha=-1)
        return slope


def tap_rows(x: Affine, index: Tensor, lines: Lines, loss: Tensor, first: int) -> TapRows:
    """The rows of neurons `index` of a node in order; `lines` and `loss` are the whole node's."""
    channels, starts = x.weights.shape[1], x.starts()
    place = index // channels
    each = (starts[1:] - starts[:-1])[place]
    entry, owner = ranges(starts[place], each)
    start = torch.cat([each.new_zeros(1), each.cumsum(0)])
    value = x.weights[entry, (index % channels)[owner]]
    r, loss, *of_lines = (t.reshape(-1)[index] for t in (x.constant, loss, *lines))
    return TapRows(index, first, start, x.column[entry], value, r, loss, Lines(*of_lines))


def substitutions(x: Affine, index: Tensor, taps: list[TapRows], pixels: int) -> tuple[float, float]:
    """About how many products `substituted` computes over all columns, and place by place, index work included."""
    places, counts = (index // x.weights.shape[1]).unique_consecutive(return_counts=True)
    splits = _splits(x, places, taps, pixels).double()
    length = torch.tensor([len(rows.value) / len(rows.index) for rows in taps], dtype=torch.float64)
    whole = sum(rows.cost for rows in taps) * 2.0 * len(index)
    each = 2 * counts[:, None] * torch.minimum(splits[:, :-1], length / SPARSE_BELOW) + INDEXING * length
    return whole, float((splits.diff(dim=1) * each).sum())


def substituted(
    x: Affine, index: Tensor, taps: list[TapRows], radius: Tensor, whole: bool, budget: Budget = UNLIMITED
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds (R,) of the values `index` of a node in order, but for what their own sums lose.

    `taps` are those of the sites before, `radius` (pixels,) the size of d. Values at one place look at the same columns:
    they are taken together, or, if `whole`, all values together over all columns there are.
    """
    channels, starts, pixels = x.weights.shape[1], x.starts().tolist(), len(radius)
    places, counts = (index // channels).unique_consecutive(return_counts=True)
    parts = list(zip(places.tolist(), index.split(counts.tolist()), strict=True))
    every, local = torch.arange(x.columns), torch.zeros(x.columns, dtype=torch.int64)
    lows, highs = [], []

    def bound(q: Tensor, some: Tensor, column: Tensor, split: list[int]) -> None:
        local[column] = every[: len(column)]
        c = x.constant.reshape(-1)[some]
        found = _lowest(torch.cat([q, -q], 1), torch.cat([c, -c]), column, split, local, taps, radius)
        lows.append(found[: len(some)])
        highs.append(-found[len(some) :])
        budget.check_time()

    if whole:
        split = _ends(x, taps, pixels).tolist()
        pieces = [piece for _, here in parts for piece in here.split(max(1, CHUNK // (2 * x.columns)))]
        for few in _together(pieces, CHUNK // (2 * x.columns)):
            q = torch.zeros(x.columns, sum(map(len, few)), dtype=torch.float64)
            at = 0
            for some in few:
                here = slice(*starts[int(some[0]) // channels :][:2])
                q[x.column[here], at : at + len(some)] = x.weights[here, some % channels]
                at += len(some)
            bound(q, torch.cat(few), every, split)
    else:
        for (place, here), split in zip(parts, _splits(x, places, taps, pixels).tolist(), strict=True):
            entries = slice(starts[place], starts[place + 1])
            for some in here.split(max(1, CHUNK // (2 * split[-1] + 1))):
                bound(x.weights[entries, some % channels], some, x.column[entries], split)
    return torch.cat(lows), torch.cat(highs)


def _together(pieces: list[Tensor], limit: int) -> Iterator[list[Tensor]]:
    """Lists of neighbours with at most so many numbers in all, or with one piece."""
    few: list[Tensor] = []
    for piece in pieces:
        if few and sum(map(len, few)) + len(piece) > limit:
            yield few
            few = []
        few.append(piece)
    yield few


def _ends(x: Affine, taps: list[TapRows], pixels: int) -> Tensor:
    """Where the columns of pixels and of each site's taps end (1 + sites,); a node may know fewer than there are."""
    return torch.tensor([pixels] + [rows.first + len(rows.index) for rows in taps]).clamp(max=x.columns)


def _splits(x: Affine, places: Tensor, taps: list[TapRows], pixels: int) -> Tensor:
    """The same among the entries of each place (places, 1 + sites)."""
    wanted = places[:, None] * x.columns + _ends(x, taps, pixels)
    return torch.searchsorted(x.place * x.columns + x.column, wanted) - x.starts()[places][:, None]


def _lowest(
    a: Tensor, constant: Tensor, column: Tensor, split: list[int], local: Tensor, taps: list[TapRows], radius: Tensor
) -> Tensor:
    """Lower bounds (B,) of coefficients (n, B) of these `column`s (n,), plus a constant (B,); both are overwritten.

    `split` says where the columns of pixels and of each site end, and `local` which of the n a column is.
    """
    for rows, first, last in zip(taps[::-1], split[-2::-1], split[:0:-1], strict=True):
        if last == first:
            continue
        tap = column[first:last] - rows.first
        slope = rows.relaxed(a[first:last], constant, tap)
        if first == rows.first and last - first == len(rows.index):
            torch.addmm(a[:first], rows.back, slope, out=a[:first])
            continue
        begin, each = rows.start[tap], rows.start[tap + 1] - rows.start[tap]
        entry, owner = ranges(begin, each)
        if not len(entry):  # constant, as in the padding
            continue
        where, value = local[rows.column[entry]], rows.value[entry]
        if len(entry) >= SPARSE_BELOW * (last - first) * first:
            block = torch.zeros(last - first, first, dtype=torch.float64)
            block.view(-1)[owner * first + where] = value
            a[:first].addmm_(block.t(), slope)
        else:
            start = torch.cat([each.new_zeros(1), each.cumsum(0)])
            block = csr_array((value.numpy(), where.numpy(), start.numpy()), shape=(last - first, first))
            a[:first] += torch.from_numpy(block.T @ slope.numpy())
    pixels = split[0]
    return constant - radius[column[:pixels]] @ a[:pixels].abs()
