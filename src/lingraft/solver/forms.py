"""Linear functions of the image below z and −z of taps over a region, their *forms*, from lines of the taps before.

They are made like bounds of margins, by passing the taps' rows back to the image.
"""

import torch
from torch import Tensor

from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Dual, Relaxed, Row

#: Columns that pass back together.
CHUNK = 256


class Before:
    """What comes before one of the sites, whose taps are bounded with given lines (T, 1) of the taps before them."""

    def __init__(self, collapsed: Collapsed, number: int, lines: Relaxed, budget: Budget = UNLIMITED):
        self.taps = collapsed.taps[number]
        self.dual = Dual(collapsed.up_to(number), torch.float64, budget)
        self.lines = Relaxed(*(line[: self.taps.first] for line in lines))

    def pieces(self) -> tuple[Tensor, ...]:
        """Numbers of the site's taps, from 0, so many at a time, taps of one place next to each other."""
        return self.taps.place.argsort(stable=True).split(CHUNK)

    def below(self, some: Tensor, sign: float) -> tuple[Tensor, Tensor]:
        """p (n, K) and c (K,) of functions p·x + c, |x| ≤ 1, below sign·z of some taps of the site (K,)."""
        rows = Row(*(sign * t[..., some] for t in self.dual.margins))
        lines = Relaxed(*(line.expand(-1, len(some)) for line in self.lines))
        found = self.dual.backward(rows, lines, None, None)
        return found.p, found.c + found.p.abs().sum(0) - 2 * self.taps.loss[some]
