"""Rows: linear functions of the values of one node, many at a time, as whole maps or as receptive-field windows.

Images are kept channels-last inside the verifier: a node's shape is (height, width, channels) or (features,).
Rows over a map hold a tensor (R, h, w, C). `origin` (R, 2) is the map position of each window's top-left corner, and
coefficients outside the map are always zero; without an origin the window is the whole map. Windows keep the rows of
an early convolution small: a neuron of CNN-B's second site depends on 11×11 of 32×32 positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Rows:
    """`coefficients` (R, *shape) for whole values, or (R, h, w, C) with `origin` (R, 2) for windows of a map."""

    coefficients: Tensor
    origin: Tensor | None = None

    def __len__(self) -> int:
        return len(self.coefficients)

    def whole(self, shape: Sequence[int]) -> "Rows":
        """The same rows over the whole node of that shape."""
        if self.origin is None:
            return Rows(self.coefficients.reshape(len(self), *shape))
        height, width, channels = shape
        place, inside = self.places(height, width)
        rows = torch.arange(len(self), device=place.device)[:, None].expand_as(place)
        full = self.coefficients.new_zeros(len(self), height * width, channels)
        full[rows[inside], place[inside]] = self.coefficients.flatten(1, 2)[inside]
        return Rows(full.view(len(self), height, width, channels))

    def places(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """For every window position (R, h·w): its flat position in the map, and whether it lies inside."""
        assert self.origin is not None
        _, h, w, _ = self.coefficients.shape
        device = self.origin.device
        y = self.origin[:, :1] + torch.arange(h, device=device)
        x = self.origin[:, 1:] + torch.arange(w, device=device)
        inside = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
        place = y[:, :, None] * width + x[:, None, :]
        return place.flatten(1), inside.flatten(1)

    def view_of(self, values: Tensor) -> Tensor:
        """What each row's window sees of `values` (the node's shape), zero outside the map; whole rows see all."""
        if self.origin is None:
            return values
        height, width, channels = values.shape
        _, h, w, _ = self.coefficients.shape
        low = torch.clamp(-self.origin.amin(0), min=0)
        high = torch.clamp(self.origin.amax(0) + self.origin.new_tensor([h - height, w - width]), min=0)
        top, left, bottom, right = int(low[0]), int(low[1]), int(high[0]), int(high[1])
        padded = F.pad(values, (0, 0, left, right, top, bottom))
        start = (self.origin + self.origin.new_tensor([top, left])) @ self.origin.new_tensor([padded.shape[1], 1])
        unique, which = start.unique(return_inverse=True)
        offset = (torch.arange(h)[:, None] * padded.shape[1] + torch.arange(w)).to(start.device)
        seen = padded.flatten(0, 1)[(unique[:, None, None] + offset).flatten()].view(-1, h, w, channels)
        return seen[which]

    def and_negated(self) -> "Rows":
        """These rows and, behind them, the same rows with the opposite sign."""
        origin = None if self.origin is None else torch.cat([self.origin, self.origin])
        return Rows(torch.cat([self.coefficients, -self.coefficients]), origin)

    def plus(self, other: "Rows", shape: Sequence[int]) -> "Rows":
        """The sum of two sets of rows over a node of that shape."""
        if self.origin is not None and other.origin is not None:
            shift = other.origin - self.origin
            if bool((shift == shift[0]).all()):
                return _sum_of_windows(self, other, shift[0].tolist())
        return Rows(self.whole(shape).coefficients + other.whole(shape).coefficients)


def _sum_of_windows(first: Rows, second: Rows, shift: list[int]) -> Rows:
    """Add windows whose corners differ by the same shift in every row, in the smallest window that holds both."""
    assert first.origin is not None
    sizes = [(first.coefficients.shape[1 + i], second.coefficients.shape[1 + i]) for i in (0, 1)]
    before = [(max(0, -s), max(0, s)) for s in shift]
    total = [max(b[0] + size[0], b[1] + size[1]) for b, size in zip(before, sizes, strict=True)]
    out = first.coefficients.new_zeros(len(first), *total, first.coefficients.shape[3])
    for i, part in enumerate((first.coefficients, second.coefficients)):
        top, left = before[0][i], before[1][i]
        out[:, top : top + part.shape[1], left : left + part.shape[2]] += part
    return Rows(out, first.origin - first.origin.new_tensor([before[0][0], before[1][0]]))


def select(indices: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Rows:
    """One row for each flat index of a node: the neuron itself (a window of one position where the node is a map)."""
    rows = torch.arange(len(indices), device=indices.device)
    if len(shape) == 3:
        _, width, channels = shape
        position, channel = indices // channels, indices % channels
        one = torch.zeros(len(indices), 1, 1, channels, dtype=dtype, device=indices.device)
        one[rows, 0, 0, channel] = 1
        return Rows(one, torch.stack([position // width, position % width], dim=1))
    flat = torch.zeros(len(indices), int(torch.tensor(shape).prod()), dtype=dtype, device=indices.device)
    flat[rows, indices] = 1
    return Rows(flat.view(len(indices), *shape))
