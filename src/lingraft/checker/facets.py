"""Bounds of ReLUs of the first site by functions of the image.

For |dᵢ| ≤ radiusᵢ and *any* row G, relu(z) = max(0, P·d + r) ≤ G·d + g with

    g = max( Σ|G|·radius, Σ|P − G|·radius + r )

So a certificate gives G as a share of each weight, and no choice of it can make the bound wrong.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lingraft.checker.collapse import Collapsed, Matrix
from lingraft.checker.format import FacetShares, Rejected
from lingraft.checker.rounding import UNDERFLOW, Array, gamma, up
from lingraft.checker.rows import Integers

#: Shares are whole numbers of this.
STEP = 1 / 15


@dataclass
class Facets:
    """h ≤ G·d + g for taps that are `used` (F, 1), of the first F: G (F, pixels) and g (F,).

    A multiplier of size 1 on such a bound loses `cost` (F,) by rounding.
    """

    used: np.ndarray
    G: Matrix
    g: Array
    cost: Array


def make_facets(of: Collapsed, order: Integers, pixels: Integers, shares: FacetShares) -> Facets | None:
    """The facets that a certificate gives; `order` is the tap, and `pixels` the pixel, that each number means."""
    if not len(shares.sizes):
        return None
    sizes, where = shares.sizes, shares.pixels
    if len(sizes) != len(order) or (sizes < 0).any() or not sizes.sum() == len(where) == len(shares.share):
        raise Rejected("facets do not fit the taps")
    if len(where) and not 0 <= where.min() <= where.max() < len(pixels):
        raise Rejected("a facet of a pixel that does not exist")
    block = next(block for block in of.blocks if block.last)
    taps, columns = np.repeat(order, sizes), pixels[where]
    if (taps >= block.last).any():
        raise Rejected("a facet of a tap behind the first site")
    of.budget.work(100 * (block.P.size + len(where)) + 1e6)
    of.budget.brief(60 * (block.P.size + len(where)))
    P = sparse.csr_matrix(block.P)
    G = sparse.csr_matrix((shares.share * STEP, (taps, columns)), shape=P.shape).multiply(P).tocsr()
    reach, rest = abs(G) @ of.radius, abs(P - G) @ of.radius
    above = of.r[: block.last] + (of.own[: block.last] + rest)
    error = gamma(P.shape[1] + 4) * (reach + rest + np.abs(of.r[: block.last]) + of.own[: block.last])
    g = up(np.maximum(np.maximum(reach, above), 0.0) + error + UNDERFLOW)
    used = np.isin(np.arange(block.last), taps)[:, None]
    return Facets(used, G, g, gamma(2 * of.count + 8) * (reach + g))
