"""Tighter upper bounds of the first site's ReLUs: functions of the image, not of z alone.

The chord above relu(z) forgets which image gives z. Over the box |x| ≤ 1, for *any* vector G,

    relu(P·x + r)  ≤  G·x + g        g = max( ‖G‖₁, ‖P − G‖₁ + r )

since g is the largest value of 0 − G·x and of P·x + r − G·x. The chord is G = s·P. The best ones are the facets of the
concave envelope (Tjandraatmadja et al. 2020): to be tight at x, leave out the weights at which x pushes z up most, as
many as can be left out with z ≤ 0 when all others push down, and count the others in full. Which x matters depends on
the row to be bounded; G is chosen once for a margin, and α of a domain says how much of it is used (`dual.py`).
"""

import torch
from torch import Tensor

from lingraft.model.activations import activation
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains, Dual, Facets
from lingraft.solver.matrix import Matrix
from lingraft.solver.proof import Shares

#: G is P times a share of each weight, a multiple of one over this, so that certificates are small.
STEPS_OF_SHARE = 15

#: Steps of the search, and how many weights at most are sorted in each.
STEPS, LARGEST = 20, 1 << 18


class FirstSite:
    """The rows P x + r of the first site over |x| ≤ 1, each with its K weights (F, K) at pixels (F, K), padded by 0."""

    def __init__(self, collapsed: Collapsed):
        taps = next(taps for taps in collapsed.taps if taps.last)
        P = taps.P.scaled(collapsed.radius)
        self.shape = P.forward.shape
        if P.sparse:
            self.tap, self.entry, value = P.entries()
        else:
            self.tap, self.entry = P.forward.nonzero(as_tuple=True)
            value = P.forward[self.tap, self.entry]
        sizes = self.tap.bincount(minlength=len(taps.r))
        self.place = torch.arange(len(value), device=value.device) - (sizes.cumsum(0) - sizes)[self.tap]
        self.weight = value.new_zeros(len(taps.r), int(sizes.max()))
        self.pixel = torch.zeros_like(self.weight, dtype=torch.long)
        self.weight[self.tap, self.place] = value
        self.pixel[self.tap, self.place] = self.entry
        self.r = taps.r + taps.P.times(collapsed.center[:, None])[:, 0]

    def facets(self, shares: Shares) -> Facets:
        """G and g."""
        share = torch.zeros_like(self.weight)
        share[self.tap, self.place] = shares.share.to(share.dtype) / STEPS_OF_SHARE
        G = share * self.weight
        g = torch.maximum(G.abs().sum(1), (self.weight - G).abs().sum(1) + self.r)
        rows, pixels = self.shape
        return Facets(Matrix.of(self.tap, self.entry, G[self.tap, self.place], (rows, pixels)), g[:, None])

    def envelope(self, x: Tensor) -> Tensor:
        """Shares (F, K) in [0, 1] of the facets of the concave envelopes at x (n,)."""
        size = self.weight.abs()
        order = (x[self.pixel] * self.weight.sign()).argsort(1, descending=True)
        ordered = size.gather(1, order)
        start = (self.r - size.sum(1))[:, None]
        value = torch.cat([start, start + 2 * ordered.cumsum(1)], 1).clamp(min=0)
        share = value.diff(dim=1) / (2 * ordered).clamp(min=1e-30)
        return torch.zeros_like(size).scatter(1, order, share.clamp(0, 1))


def fit(first: FirstSite, dual: Dual, base: Domains) -> Shares:
    """Shares that make the bound of `base` (one domain, without facets so far) good; its other multipliers stay.

    The least value over the box of what bounds the margin, as a function of x, is a convex problem: the Frank-Wolfe
    method on its dual, where x is the mean of all minimizers so far, and each step moves G towards the facets at x.
    """
    lines = dual.lines(base)
    row = dual.bounded(base)
    count = len(first.r)
    q, slope, chord = (t[:count, 0].double() for t in (row.q, lines.lower_slope, lines.upper_slope))
    up, down = q.clamp(min=0), q.clamp(max=0)
    share = chord[:, None].expand_as(first.weight).clone()
    p = row.p[:, 0].double()

    def on_image(slope: Tensor, share: Tensor) -> Tensor:
        weights = ((up * slope)[:, None] + down[:, None] * share) * first.weight
        return torch.zeros_like(p).index_add(0, first.pixel.flatten(), weights.flatten())

    rest = p - on_image(slope, share)
    x = -p.sign()
    for step in range(STEPS):
        dual.budget.check_time()
        move = 2 / (step + 3)
        x = x + move * (-p.sign() - x)
        z = (first.weight * x[first.pixel]).sum(1) + first.r
        slope = slope + move * ((z > 0).double() - slope)
        share = share + move * (first.envelope(x) - share)
        p = rest + on_image(slope, share)
    share = torch.where(down[:, None] < 0, share, chord[:, None])  # where nothing is known, about the chord
    whole = (share[first.tap, first.place] * STEPS_OF_SHARE).round().to(torch.int8)
    return Shares(first.tap, first.entry, whole)


def first_site(collapsed: Collapsed) -> FirstSite | None:
    """The first site that has taps, if they are ReLUs, and have not so many weights that sorting them takes long."""
    taps = next((taps for taps in collapsed.taps if taps.last), None)
    if taps is None or activation(taps.kind).pieces is None:
        return None
    entries = len(taps.P.forward.values()) if taps.P.sparse else taps.P.forward.numel()
    return FirstSite(collapsed) if 0 < entries <= LARGEST else None
