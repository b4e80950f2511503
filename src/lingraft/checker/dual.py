"""Lower bounds over domains: regions in which some taps are restricted to one side of 0, one domain a column.

From the last site to the first, with q the coefficient on h = relu(z) and *any* number λ,

    q·h ≥ λ·z + μ        μ = min of q·relu(z) − λ·z over lower ≤ z ≤ upper

where the minimum is at lower, at upper or at 0. So the multipliers of a certificate only choose λ, and no choice can
make the bound wrong. Then λ·z = λ·(P d + Q h + r) adds to the coefficients of the taps before and of the image. What
the rounding of these sums can take is Σ|λ|·cost (see `collapse.py`). A part of a negative q may use h ≤ G·d + g instead
(see `facets.py`), which adds to the coefficients of the image alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lingraft.checker.collapse import Collapsed, Matrix
from lingraft.checker.rounding import UNDERFLOW, Array, down, gamma
from lingraft.checker.rows import Integers


@dataclass
class Columns:
    """Linear functions q·h + p·d + c, one a column: q (T, B), p (pixels, B), c (B,), all within `slack` (B,)."""

    q: Array
    p: Array
    c: Array
    slack: Array


@dataclass
class Facets:
    """h ≤ G·d + g for taps of a site that are `used` (m, 1), of its m: G (m, pixels) and g (m,).

    A multiplier of size 1 on such a bound loses `cost` (m,) by rounding.
    """

    used: np.ndarray
    G: Matrix
    g: Array
    cost: Array


def margin(of: Collapsed, number: int) -> Columns:
    """One margin, as one column."""
    here = slice(number, number + 1)
    return Columns(of.q[:, here], of.p[:, here], of.c[here], of.slack[here])


def signed_taps(of: Collapsed, taps: Integers, sides: Array, factor: Array, plus: Columns) -> Columns:
    """±z of some taps plus `factor` (K,) ≥ 0 times one other column."""
    q, p = np.zeros((of.count, len(taps))), np.zeros((len(of.radius), len(taps)))
    for block in of.blocks:
        here = ((taps >= block.first) & (taps < block.last)).nonzero()[0]
        if not len(here):
            continue
        for into, matrix in ((q[: block.first], block.Q), (p, block.P)):
            rows = matrix[taps[here] - block.first]
            into[:, here] = (rows if isinstance(rows, np.ndarray) else rows.toarray()).T
    c, slack = of.r[taps], of.own[taps]
    c, total = sides * c, sides * c + factor * plus.c
    q, p = sides * q, sides * p
    # fl(a + factor·b) has two roundings
    sizes = (np.abs(q) + factor * np.abs(plus.q), np.abs(p) + factor * np.abs(plus.p))
    reach = np.maximum(of.upper, 0)
    rounded = gamma(2) * (reach @ sizes[0] + of.radius @ sizes[1] + np.abs(c) + factor * np.abs(plus.c))
    return Columns(q + factor * plus.q, p + factor * plus.p, total, slack + factor * plus.slack + rounded)


@dataclass
class Below:
    """Linear functions p·d + c below something: p (pixels, B), c (B,); `bound` (B,) is their minimum over the box."""

    p: Array
    c: Array
    bound: Array


def below(
    of: Collapsed,
    rows: Columns,
    lower: Array,
    upper: Array,
    alpha: Array,
    push: Array | None,
    facets: Mapping[int, Facets] | None = None,
    sites: int | None = None,
) -> Below:
    """Linear functions of the image below the rows, where lower ≤ z ≤ upper (T, B) or (T, 1).

    `alpha` (T, B) is the slope of the line below an open relu; `push` (T, B) is subtracted from λ, it is +β where z ≥ 0
    and −β where z ≤ 0 is known. Of a negative coefficient on an open relu, the share α uses the `facets` of its site,
    found by the number of the site's first tap. With `sites`, the rows have no coefficients on taps from that site on.
    """
    width = alpha.shape[1]
    q = np.repeat(rows.q, width, axis=1) if rows.q.shape[1] == 1 else rows.q.copy()
    p = np.repeat(rows.p, width, axis=1) if rows.p.shape[1] == 1 else rows.p.copy()
    reach = np.maximum(of.upper, 0)
    error = rows.slack + gamma(2 * of.count + 8) * (reach @ np.abs(rows.q) + of.radius @ np.abs(rows.p))
    gains, line = np.zeros(width), np.zeros(width)
    for block in reversed(of.blocks[:sites]):
        if block.last == block.first:
            continue
        here = slice(block.first, block.last)
        mine, low, high = q[here], lower[here], upper[here]
        on, open_ = low >= 0, (low < 0) & (high > 0)
        above_relus = facets.get(block.first) if facets is not None else None
        if above_relus is not None:
            over = np.where(open_ & above_relus.used & (mine < 0), mine * alpha[here], 0.0)
            mine = mine - over
            error = error + gamma(1) * (reach[here] @ np.abs(mine)) + above_relus.cost @ np.abs(over)
            line += above_relus.g @ over
            p += above_relus.G.T @ over
        above = np.where(open_, high / np.where(open_, high - low, 1.0), on)
        step = np.where(mine > 0, np.where(open_, alpha[here], on), above) * mine  # λ
        if push is not None:
            step -= push[here]
        rest = mine - step
        least = np.minimum(np.where(low < 0, -step, rest) * low, np.where(high > 0, rest, -step) * high)  # μ
        np.minimum(least, 0.0, out=least, where=open_)
        gains += least.sum(0)
        line += of.r[here] @ step
        error = error + gamma(of.count + 4) * np.abs(least).sum(0) + of.cost[here] @ np.abs(step)
        if block.first:
            q[: block.first] += block.Q.T @ step
        p += block.P.T @ step
    error = error + gamma(len(of.blocks) + 4) * (np.abs(rows.c) + np.abs(gains) + np.abs(line))
    c = down(rows.c + gains + line - (1.001 * error + UNDERFLOW))
    spread = of.radius @ np.abs(p)
    return Below(p, c, down(c - spread * (1 + gamma(len(of.radius) + 4))))
