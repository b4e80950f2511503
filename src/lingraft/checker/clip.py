"""Tighter bounds of the taps of a domain, from linear functions of the image.

Where a margin is at most 0, so is the linear function p·d + c below it. With a linear function a·d + b below z (its
*form*, made once for the region) and any γ ≥ 0,

    z  ≥  a·d + b  ≥  a·d + b + γ·(p·d + c)  ≥  b + γ·c − Σ|a + γ·p|·radius

and likewise for −z. Taps that look at the same few pixels are handled together; on the other pixels, p·d is at least
−Σ|p|·radius. With everything scaled by the radius, and |a| and |p| to a sum of 1, γ is k·Σ|a| / Σ|p| for numbers k that
the certificate gives, and the sums are distances in the 1-norm.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from lingraft.checker.budget import STEP
from lingraft.checker.collapse import Collapsed
from lingraft.checker.dual import Below, Columns, below, signed_taps
from lingraft.checker.rounding import Array, down, gamma
from lingraft.checker.rows import Integers

#: Taps whose forms are made at once.
CHUNK = 128


@dataclass
class Group:
    """Taps (m,) that look at pixels (w,), and their forms: below z, then below −z.

    unit (2m, w) are a·radius over `size` (2m, 1), which is about Σ|a|·radius; constant (2m, 1) is b; bound (2m, 1) is
    what the form alone says, with γ = 0.
    """

    taps: Integers
    pixels: Integers
    unit: Array
    size: Array
    constant: Array
    bound: Array


def make_groups(of: Collapsed, numbers: Integers, lower: Array, upper: Array, alpha: Array) -> list[Group]:
    """Forms of all taps with a number ≥ 0 (T,), from bounds (T,) and slopes (T,); equal numbers are one group."""
    for site, block in enumerate(of.blocks):
        own = numbers[block.first : block.last]
        count, pieces = int((own >= 0).sum()), len(np.unique(own)) + len(own) // CHUNK
        of.budget.work(of.work(2 * count, site) + pieces * (of.work(0, site) + 10 * STEP + len(own)))
    of.budget.brief(100 * CHUNK * (of.count + len(of.radius)))
    none = Columns(np.zeros((of.count, 1)), np.zeros((len(of.radius), 1)), np.zeros(1), np.zeros(1))
    groups = []
    for site, block in enumerate(of.blocks):
        for parts in _batches(numbers[block.first : block.last], block.first):
            taps = np.concatenate(parts)
            both, sides = np.concatenate([taps, taps]), np.repeat([1.0, -1.0], len(taps))
            rows = signed_taps(of, both, sides, np.zeros(len(both)), none)
            slopes = np.repeat(alpha[:, None], len(both), axis=1)
            forms = below(of, rows, lower[:, None], upper[:, None], slopes, None, sites=site)
            ends = np.cumsum([len(part) for part in parts])
            for part, end in zip(parts, ends, strict=True):
                own = np.arange(end - len(part), end)
                columns = np.concatenate([own, own + len(taps)])
                pixels = np.flatnonzero(forms.p[:, columns].any(1))
                scaled = (forms.p[np.ix_(pixels, columns)] * of.radius[pixels, None]).T
                of.budget.hold(scaled.nbytes)
                size = np.maximum(np.abs(scaled).sum(1, keepdims=True), 1e-30)
                constant, bound = forms.c[columns, None], forms.bound[columns, None]
                groups.append(Group(part, pixels, scaled / size, size, constant, bound))
    return groups


def _batches(numbers: Integers, first: int) -> Iterator[list[Integers]]:
    """The taps of a site, from `first` on, whose numbers are ≥ 0, by these; at most CHUNK of them at a time."""
    batch: list[Integers] = []
    for number in np.unique(numbers[numbers >= 0]):
        taps = first + np.flatnonzero(numbers == number)
        for part in np.array_split(taps, -(-len(taps) // CHUNK)):
            if sum(map(len, batch)) + len(part) > CHUNK and batch:
                yield batch
                batch = []
            batch.append(part)
    if batch:
        yield batch


def clip(of: Collapsed, groups: list[Group], grid: list[float], goal: Below, lower: Array, upper: Array) -> None:
    """Tighten bounds (T, B) in place, for x at which what `goal` is below is at most 0."""
    units = sum(group.unit.size for group in groups) * lower.shape[1]
    of.budget.work(len(grid) * (2 * units + 2 * STEP * len(groups)) + 5 * STEP * len(groups))
    scaled = np.abs(goal.p * of.radius[:, None])
    for group in groups:
        _tighten(group.taps, np.arange(lower.shape[1]), group.bound, lower, upper)
        reach = scaled[group.pixels].sum(0)
        binding = np.flatnonzero((-goal.bound < 2 * reach) & (reach > 0))  # elsewhere nothing is gained
        if not len(binding):
            continue
        reach = reach[binding]
        here = (goal.p[group.pixels][:, binding] * of.radius[group.pixels, None] / reach).T
        width = len(group.pixels) + 8
        # c on these pixels: the bound, but without the loss on them
        level = down(goal.bound[binding] + reach * (1 - gamma(width))) / reach
        best = np.full((len(group.unit), len(binding)), -np.inf)
        for k in grid:
            distance = cdist(group.unit, -k * here, "cityblock")
            value = k * level - distance
            error = gamma(width) * (1 + k + distance + k * np.abs(level))
            np.maximum(best, value - error, out=best)
        result = group.constant + group.size * best
        result = down(result - gamma(4) * (np.abs(group.constant) + np.abs(group.size * best)))
        _tighten(group.taps, binding, result, lower, upper)


def _tighten(taps: Integers, columns: Integers, values: Array, lower: Array, upper: Array) -> None:
    """Take over bounds of z, and behind them of −z, where they are better; those that overflowed prove nothing."""
    values = np.where(np.isfinite(values), values, -np.inf)
    at = (taps[:, None], columns)
    lower[at] = np.maximum(lower[at], values[: len(taps)])
    upper[at] = np.minimum(upper[at], -values[len(taps) :])
