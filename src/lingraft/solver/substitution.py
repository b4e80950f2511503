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

#: Coefficients that are substituted at once: 32 MB.
CHUNK = 2**22

#: Rows that are substituted together at least, if they are of neighbours.
TOGETHER = 128

#: What other work costs, measured in products of large dense matrices: a product of a small block or of a sparse
#: matrix, adding a number to a row, finding the place of an entry, and the calls for a block.
SMALL_PRODUCT, SPARSE_PRODUCT, ADDITION, INDEXING, CALLS = 2.0, 10.0, 26.0, 300.0, 300_000.0


@dataclass
class TapRows:
    """The taps `index` (T,) of one site, whose columns begin at `first`, as affine functions of the columns before.

    Those of tap t are `column` and `value` from start[t] to start[t + 1]; its constant is `r`, and `loss` what rounding
    may have taken from all that, and takes from sums of it. `lines` are those of the taps, (T,) each. `blocks` (T',)
    counts neighbours at the same place, which have the same columns.
    """

    index: Tensor
    first: int
    start: Tensor
    column: Tensor
    value: Tensor
    r: Tensor
    loss: Tensor
    lines: Lines
    blocks: Tensor

    @property
    def small(self) -> bool:
        """Whether blocks are so small that entries are better looked at one by one."""
        return INDEXING * len(self.value) < CALLS * len(self.blocks)

    @cached_property
    def cost(self) -> float:
        """What it takes to add the rows to one column of coefficients over all columns."""
        return min(self._dense_cost, SMALL_PRODUCT * len(self.value) + ADDITION * self._entries)

    def cost_among(self, taps: Tensor, columns: Tensor) -> Tensor:
        """What it takes for so many taps and columns of coefficients, over the columns that these look at."""
        each = len(self.value) / len(self.index)
        if self.small:
            return taps * each * (SPARSE_PRODUCT * columns + INDEXING)
        blocks = len(self.blocks) / len(self.index)
        adding = ADDITION * self._entries / len(self.value)
        return taps * (each * (SMALL_PRODUCT + adding) * columns + blocks * CALLS)

    @cached_property
    def _entries(self) -> float:
        """Columns of all blocks."""
        return float(self.start.diff()[self.blocks.cumsum(0) - 1].sum())

    @property
    def _dense_cost(self) -> float:
        return float(len(self.index) * self.first)

    @cached_property
    def _dense(self) -> Tensor | None:
        """The weights (T, columns before), if products with all of them cost the least."""
        if self.cost < self._dense_cost:
            return None
        if len(self.value) == self._dense_cost:
            return self.value.view(len(self.index), -1)
        dense = torch.zeros(len(self.index), self.first, dtype=torch.float64)
        dense[torch.arange(len(self.index)).repeat_interleave(self.start.diff()), self.column] = self.value
        return dense

    def relaxed(self, a: Tensor, constant: Tensor, some: Tensor) -> Tensor:
        """λ (S, B) for coefficients (S, B) of some taps; what is constant is added to `constant` (B,), in place."""
        below_slope, below, above_slope, above = (line[some] for line in self.lines)
        positive = a.clamp(min=0)
        negative = a - positive
        constant.addmv_(positive.t(), below).addmv_(negative.t(), above)
        slope = positive.mul_(below_slope[:, None]).addcmul_(negative, above_slope[:, None])
        constant.addmv_(slope.t(), self.r[some])
        constant.addmv_(torch.abs(slope, out=negative).t(), self.loss[some], alpha=-1)
        return slope

    def add(self, a: Tensor, slope: Tensor, some: Tensor, local: Tensor | None) -> None:
        """Add λ (S, B) times the rows of some taps, of whole blocks, to coefficients (n, B) of columns, in place.

        `local` says which of the n each column is; None: n are all columns before, and the taps are all there are.
        """
        if local is None and self._dense is not None:
            a.add_((slope.t() @ self._dense).t())  # few columns are twice as fast on this side of a product
        elif local is not None and self.small:
            begin, each = self.start[some], self.start.diff()[some]
            entry, _ = ranges(begin, each)
            start = torch.cat([each.new_zeros(1), each.cumsum(0)])
            place = local[self.column[entry]]
            rows = csr_array((self.value[entry].numpy(), place.numpy(), start.numpy()), shape=(len(some), len(a)))
            a += torch.from_numpy(rows.T @ slope.numpy())
        else:
            for here, column, block in self._blocks(some):
                a.index_add_(0, column if local is None else local[column], block.t() @ slope[here])

    def carried(self, moved: Tensor) -> Tensor:
        """How far (T, n) the taps are moved, where columns are by so much (columns before, n)."""
        shape = len(self.index), self.first
        sizes = csr_array((self.value.abs().numpy(), self.column.numpy(), self.start.numpy()), shape=shape)
        return torch.from_numpy(sizes @ moved.numpy())

    def _blocks(self, some: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Where taps of one place are among `some`, their columns (n,), and their weights (taps, n)."""
        last = self.blocks.cumsum(0)
        which = torch.searchsorted(last, some, right=True).unique_consecutive()
        counts = self.blocks[which].tolist()
        begin, end = self.start[last[which] - self.blocks[which]].tolist(), self.start[last[which]].tolist()
        at = 0
        for count, i, j in zip(counts, begin, end, strict=True):
            yield slice(at, at + count), self.column[i : i + (j - i) // count], self.value[i:j].view(count, -1)
            at += count


def tap_rows(x: Affine, index: Tensor, lines: Lines, loss: Tensor, first: int) -> TapRows:
    """The rows of neurons `index` of a node in order; `lines` and `loss` are the whole node's."""
    channels, starts = x.weights.shape[1], x.starts()
    places, blocks = (index // channels).unique_consecutive(return_counts=True)
    start = torch.cat([blocks.new_zeros(1), starts.diff()[index // channels].cumsum(0)])
    column, value = torch.empty(int(start[-1]), dtype=torch.int64), x.weights.new_empty(int(start[-1]))
    at = 0
    ends = starts[places].tolist(), starts[places + 1].tolist()
    for own, begin, end in zip((index % channels).split(blocks.tolist()), *ends, strict=True):
        shape, size = (len(own), end - begin), len(own) * (end - begin)
        value[at : at + size].view(shape).copy_(x.weights[begin:end, own].t())
        column[at : at + size].view(shape).copy_(x.column[begin:end].expand(shape))
        at += size
    r, loss, *of_lines = (t.reshape(-1)[index] for t in (x.constant, loss, *lines))
    return TapRows(index, first, start, column, value, r, loss, Lines(*of_lines), blocks)


def substitutions(x: Affine, index: Tensor, taps: list[TapRows], pixels: int) -> tuple[float, float]:
    """About what `substituted` costs for some rows over all columns, and with those that values at a place look at."""
    places, counts = (index // x.weights.shape[1]).unique_consecutive(return_counts=True)
    ends = torch.tensor([pixels] + [rows.first + len(rows.index) for rows in taps]).clamp(max=x.columns)
    entry = torch.searchsorted(x.place * x.columns + x.column, places[:, None] * x.columns + ends)
    seen = entry.diff(dim=1).double().unbind(1)
    among = sum(float(rows.cost_among(here, counts).sum()) for rows, here in zip(taps, seen, strict=True))
    return len(index) * sum(rows.cost for rows in taps), among


def substituted(
    x: Affine,
    index: Tensor,
    sign: Tensor | None,
    taps: list[TapRows],
    radius: Tensor,
    whole: bool,
    budget: Budget = UNLIMITED,
) -> Tensor:
    """Lower bounds (R,) of the values `index` of a node in order, times their `sign` (R,), but for what their own sums
    lose; without a sign (2, R): of the values, and of these times −1.

    `taps` are those of the sites before, `radius` (pixels,) the size of d. Values are taken together with neighbours,
    over the columns that they look at, or, if `whole`, over all columns there are.
    """
    channels, starts = x.weights.shape[1], x.starts().tolist()
    every, local = torch.arange(x.columns), torch.zeros(x.columns, dtype=torch.int64)
    ends = torch.tensor([len(radius)] + [rows.first + len(rows.index) for rows in taps])
    sides, done = 2 if sign is None else 1, 0
    lows = [radius.new_zeros(sides, 0)]
    for few in _groups(index // channels, index, (CHUNK // x.columns if whole else TOGETHER) // sides):
        budget.check_time()
        parts = [(slice(*starts[int(some[0]) // channels :][:2]), some) for some in few]
        if whole:
            column = every
        else:
            seen = torch.zeros(x.columns, dtype=torch.bool)
            for here, _ in parts:
                seen[x.column[here]] = True
            column = seen.nonzero().flatten()
            local[column] = every[: len(column)]
        some = torch.cat(few)
        a = torch.zeros(len(column), sides * len(some), dtype=torch.float64)
        at = 0
        for here, own in parts:
            place = x.column[here] if whole else local[x.column[here]]
            a[place, at : at + len(own)] = x.weights[here, own % channels]
            at += len(own)
        c = x.constant.reshape(-1)[some]
        if sign is None:
            torch.neg(a[:, :at], out=a[:, at:])
            c = torch.cat([c, -c])
        else:
            a *= sign[done : done + at]
            c = c * sign[done : done + at]
        done += at
        split = torch.searchsorted(column, ends).tolist()
        lows.append(_lowest(a, c, column, split, None if whole else local, taps, radius).view(sides, -1))
    return torch.cat(lows, dim=1) if sign is None else torch.cat(lows, dim=1)[0]


def _groups(places: Tensor, index: Tensor, size: int) -> Iterator[list[Tensor]]:
    """Neighbouring values, place by place, about `size` in all."""
    counts = places.unique_consecutive(return_counts=True)[1].tolist()
    few: list[Tensor] = []
    together = 0
    for here, count in zip(index.split(counts), counts, strict=True):
        for some in here.split(max(1, size)) if count > size else (here,):
            if few and together + len(some) > size:
                yield few
                few, together = [], 0
            few.append(some)
            together += len(some)
    if few:
        yield few


def _lowest(
    a: Tensor,
    constant: Tensor,
    column: Tensor,
    split: list[int],
    local: Tensor | None,
    taps: list[TapRows],
    radius: Tensor,
) -> Tensor:
    """Lower bounds (B,) of coefficients (n, B) of these `column`s (n,), plus a constant (B,); both are overwritten.

    `split` says where the columns of pixels and of each site end; `local` as in `TapRows.add`.
    """
    for rows, first, last in zip(taps[::-1], split[-2::-1], split[:0:-1], strict=True):
        if last > first:
            some = column[first:last] - rows.first
            rows.add(a[:first], rows.relaxed(a[first:last], constant, some), some, local)
    pixels = split[0]
    return constant - radius[column[:pixels]] @ a[:pixels].abs_()
