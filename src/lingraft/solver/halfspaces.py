"""What linear functions below the margins say about a box of few inputs: where in it a margin can be 0 or less.

A margin is the maximum of K functions; of each, its bound b on the box and a row p are known, so that it is at least
b + p·(x − corner), where the corner is that of the box at which p·x is lowest. Where the margin is not above 0, none of
these is: a point there lies in K halfspaces.
"""

import torch
from torch import Tensor

from lingraft.solver.margin import MARGIN

#: What is rounded away here, as a share of the numbers that are added up: far more than a few dozen operations lose.
ROUNDING = 1e-12


def combined(below: Tensor, rows: Tensor, radius: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A combination of the functions, bounds (B, L, K) and rows (B, L, K, n), with a high bound.

    Its bound (B, L), its row (B, L, n) and the shares (B, L, K) of the functions.

    Whatever the share λ of one function and 1 − λ of another, the margin is at least that. The bound of a combination
    on boxes of that `radius` (B, n) is concave in λ, with bends where a coefficient vanishes: one of these is the best.
    Beginning with the function of the highest bound, each other one is taken in turn, and then again: what did not help
    at first may once another one is in.
    """
    width = radius[:, None, None]
    middle = below + (rows.abs() * width).sum(3)  # values at the middle of the box
    best = below.argmax(2, keepdim=True)
    value, row = middle.gather(2, best), rows.gather(2, best[..., None].expand(*best.shape, rows.shape[3]))
    bound, shares = below.gather(2, best), torch.zeros_like(below).scatter_(2, best, 1.0)
    count = below.shape[2]
    for k in (*range(count), *range(count if count > 2 else 0)):
        other_value, other = middle[:, :, k : k + 1], rows[:, :, k : k + 1]
        share = (other / (other - row)).nan_to_num(1.0).clamp(0, 1).transpose(2, 3)  # (B, L, n, 1) of `row`
        values = share[..., 0] * value + (1 - share[..., 0]) * other_value
        mixed = share * row + (1 - share) * other
        size = value.abs() + other_value.abs() + ((row.abs() + other.abs()) * width).sum(3)
        bounds = values - (mixed.abs() * width).sum(3) - ROUNDING * size
        top, which = bounds.max(2, keepdim=True)
        better = top > bound
        bound = torch.where(better, top, bound)
        value = torch.where(better, values.gather(2, which), value)
        taken = torch.where(better, share[..., 0].gather(2, which), 1.0)
        shares = shares * taken
        shares[:, :, k : k + 1] += 1 - taken
        row = torch.where(better[..., None], mixed.gather(2, which[..., None].expand(*which.shape, row.shape[3])), row)
    return bound[:, :, 0], row[:, :, 0], shares


def clipped(lower: Tensor, upper: Tensor, below: Tensor, rows: Tensor, open_: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes (B, n) that hold all points of the given ones at which one of the `open_` (B, L) margins is not above 0.

    For each function with bound b and row p such a point is no further than −b / |p_d| from the side of the corner. A
    function of which either is not finite says nothing: infinity comes from an overflow on the way.
    """
    known = torch.isfinite(below) & torch.isfinite(rows).all(3)
    rows = torch.where(known[..., None], rows, 0.0)
    reach = (MARGIN - below).clamp(min=0)[..., None] / rows.abs() * (1 + ROUNDING)
    reach = reach.nan_to_num(nan=torch.inf, posinf=torch.inf)  # no limit where p is 0
    highest = torch.where(rows > 0, lower[:, None, None] + reach, torch.inf).amin(2)
    lowest = torch.where(rows < 0, upper[:, None, None] - reach, -torch.inf).amax(2)
    highest = torch.where(open_[..., None], highest, -torch.inf).amax(1)
    lowest = torch.where(open_[..., None], lowest, torch.inf).amin(1)
    infinity = torch.full_like(highest, torch.inf)  # the sums may have been rounded, too
    highest, lowest = torch.nextafter(highest, infinity), torch.nextafter(lowest, -infinity)
    return torch.maximum(lower, lowest), torch.minimum(upper, highest)
