"""Bounds of ReLUs by functions of the image.

Let W·d + w be above z for |dᵢ| ≤ radiusᵢ: in the first site z itself, behind it what `dual.py` gives for −z. For *any*
row G, relu(z) ≤ max(0, W·d + w) ≤ G·d + g with

    g = max( Σ|G|·radius, Σ|W − G|·radius + w )

So a certificate gives G as a share of each weight, and no choice of it can make the bound wrong.
"""

import numpy as np
from scipy import sparse

from lingraft.checker.budget import STEP as CALL
from lingraft.checker.collapse import Block, Collapsed, Matrix
from lingraft.checker.dual import Columns, Facets, below, signed_taps
from lingraft.checker.format import FacetShares, Rejected
from lingraft.checker.rounding import UNDERFLOW, Array, gamma, up
from lingraft.checker.rows import Integers

#: Shares are whole numbers of this.
STEP = 1 / 15

#: Taps whose functions are made at once.
CHUNK = 128


def make_facets(
    of: Collapsed, order: Integers, pixels: Integers, shares: FacetShares, slopes: Array
) -> dict[int, Facets]:
    """The facets that a certificate gives, by the number of the first tap of each site that has any.

    `order` is the tap, and `pixels` the pixel, that each number means; `slopes` (T,) are below the taps, for W.
    """
    if not len(shares.sizes):
        return {}
    sizes, where = shares.sizes, shares.pixels
    if len(sizes) != len(order) or (sizes < 0).any() or not sizes.sum() == len(where) == len(shares.share):
        raise Rejected("facets do not fit the taps")
    if len(where) and not 0 <= where.min() <= where.max() < len(pixels):
        raise Rejected("a facet of a pixel that does not exist")
    taps, columns = np.repeat(order, sizes), pixels[where]
    found = {}
    for site, block in enumerate(of.blocks):
        here = np.flatnonzero((taps >= block.first) & (taps < block.last))
        if not len(here):
            continue
        if block.first and not len(shares.slopes):
            raise Rejected("a facet of a tap behind the first site, without slopes")
        which = np.unique(taps[here])
        W, w = _exactly(of, block, which) if not block.first else _above(of, site, which, slopes)
        of.budget.work(100 * (W.size + len(here)) + 1e6)
        of.budget.brief(60 * (W.size + len(here)))
        rows = np.searchsorted(which, taps[here])
        G = sparse.csr_matrix((shares.share[here] * STEP, (rows, columns[here])), shape=W.shape).multiply(W).tocsr()
        found[block.first] = _facets(of, block, which, G, W, w)
    return found


def _facets(of: Collapsed, block: Block, taps: Integers, G: Matrix, W: Matrix, w: Array) -> Facets:
    """Of the given taps of a block, whose z is at most W·d + w."""
    reach, rest = abs(G) @ of.radius, abs(W - G) @ of.radius
    error = gamma(W.shape[1] + 4) * (reach + rest + np.abs(w))
    g = up(np.maximum(np.maximum(reach, w + rest), 0.0) + error + UNDERFLOW)
    count = block.last - block.first
    used, constant, cost = np.zeros((count, 1), bool), np.zeros(count), np.zeros(count)
    places = taps - block.first
    used[places], constant[places] = True, g
    cost[places] = gamma(2 * of.count + 8) * (reach + g)
    spread = sparse.csr_matrix((np.ones(len(taps)), (places, np.arange(len(taps)))), shape=(count, len(taps)))
    return Facets(used, (spread @ G).tocsr(), constant, cost)


def _exactly(of: Collapsed, block: Block, taps: Integers) -> tuple[Matrix, Array]:
    """W and w of taps of the first site."""
    return sparse.csr_matrix(block.P[taps - block.first]), up(of.r[taps] + of.own[taps])


def _above(of: Collapsed, site: int, taps: Integers, slopes: Array) -> tuple[Matrix, Array]:
    """W and w of taps of a later site: what is below −z over the whole region, with its sign changed."""
    of.budget.work(of.work(len(taps), site) + (1 + len(taps) // CHUNK) * (of.work(0, site) + 10 * CALL))
    of.budget.brief(100 * CHUNK * (of.count + len(of.radius)) + 12 * len(taps) * len(of.radius))
    none = Columns(np.zeros((of.count, 1)), np.zeros((len(of.radius), 1)), np.zeros(1), np.zeros(1))
    parts, constants = [], []
    for some in np.array_split(taps, -(-len(taps) // CHUNK)):
        rows = signed_taps(of, some, np.full(len(some), -1.0), np.zeros(len(some)), none)
        alpha = np.repeat(slopes[:, None], len(some), axis=1)
        found = below(of, rows, of.lower[:, None], of.upper[:, None], alpha, None, sites=site)
        if not np.isfinite(found.c).all():
            raise Rejected("a facet that overflows")
        parts.append(sparse.csr_matrix(-found.p.T))
        constants.append(-found.c)
    return sparse.vstack(parts).tocsr(), np.concatenate(constants)
