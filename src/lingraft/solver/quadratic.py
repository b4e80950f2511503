"""Quadratic functions of a few inputs below rows over products of values, for many boxes.

A row that meets a product a·b gets coefficients that are linear functions of the inputs. With a = u + A·t + e and
b = v + B·t + e' on a box, where inputs are center + radius·t and the errors e and e' are small,

    a·b = (v + B·t)·a + (u + A·t)·b − (u + A·t)·(v + B·t) + e·e'

exactly, so that all but e·e' goes on to the inputs, where it is a quadratic function of t. What products have in common
is not forgotten on the way, and a sum of squares stays one, whose bend costs nothing.

A row is 1 + m rows here, its columns: the constant part of its coefficients, and what each of the m inputs adds.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.bounds import SiteBounds
from lingraft.solver.budget import Budget
from lingraft.solver.crown import AtProduct, AtSite, Watch, pass_back
from lingraft.solver.intervals import UNDERFLOW, share
from lingraft.solver.network import Network
from lingraft.solver.nodes import Product, Site
from lingraft.solver.rows import Rows

#: What is rounded away here, as a share of the numbers that are added up: far more than a few dozen operations lose,
#: or the eigenvalues of a small matrix.
ROUNDING = 1e-12

#: How often each input is moved to where a function is lowest: where that is does not need to be known well.
SWEEPS = 3


class Form(NamedTuple):
    """Values of a node that are middle (B, S) + slopes (B, S, m)·t, but for at most an error (B, S)."""

    middle: Tensor
    slopes: Tensor
    error: Tensor

    @property
    def reach(self) -> Tensor:
        """How far (B, S) values may be from the middle."""
        return self.slopes.abs().sum(2) + self.error

    @classmethod
    def of_intervals(cls, lower: Tensor, upper: Tensor, inputs: int) -> "Form":
        """Of values between bounds (B, S), of which nothing else is known."""
        middle = (lower + upper) / 2
        return cls(middle, middle.new_zeros(*middle.shape, inputs), torch.maximum(upper - middle, middle - lower))

    def put(self, box: Tensor, value: Tensor, lower: Tensor, below: Tensor, upper: Tensor, above: Tensor) -> None:
        """Values (P,) of boxes (P,) lie from lower (P,) + below (P, m)·t to upper + above·t."""
        apart = (above - below).abs().sum(1) / 2
        size = lower.abs() + upper.abs() + (below.abs() + above.abs()).sum(1)
        self.middle[box, value], self.slopes[box, value] = (lower + upper) / 2, (below + above) / 2
        self.error[box, value] = (upper - lower) / 2 + apart + share(below.shape[1]) * size + UNDERFLOW


class Band(NamedTuple):
    """Parallel lines, (B, *shape) each: an activation lies between slope·z + intercept and that plus height."""

    slope: Tensor
    intercept: Tensor
    height: Tensor


def band(site: Site, lines: Lines, lower: Tensor, upper: Tensor) -> Band:
    """Around a site between bounds (B, *shape)."""
    pieces = site.activation.pieces
    if pieces is not None and pieces.is_relu:  # the line above is the chord
        height = site.activation.gap(lower, upper).masked_fill(site.grafted, 0.0)
        return Band(lines.upper_slope, lines.upper_intercept - height, height)
    slope = (lines.lower_slope + lines.upper_slope) / 2
    low, high = ((end_slope - slope, end) for end_slope, end in zip(lines[::2], lines[1::2], strict=True))
    below = torch.minimum(*(low[0] * z + low[1] for z in (lower, upper)))
    above = torch.maximum(*(high[0] * z + high[1] for z in (lower, upper)))
    size = sum(part[0].abs() * torch.maximum(lower.abs(), upper.abs()) + part[1].abs() for part in (low, high))
    return Band(slope, below - share(4) * size, above - below + 2 * share(4) * size)


class Quadratics(NamedTuple):
    """Functions value (…,) + slopes (…, m)·t + t·bend·t of inputs t between −1 and 1; bend (…, m, m) is symmetric."""

    value: Tensor
    slopes: Tensor
    bend: Tensor

    def weighted(self, shares: Tensor) -> "Quadratics":
        """The sums of functions (…, K) by their shares (…, K)."""
        value, slopes, bend = self
        return Quadratics(
            (shares * value).sum(-1), (shares[..., None] * slopes).sum(-2), (shares[..., None, None] * bend).sum(-3)
        )

    def tangents(self) -> tuple[Tensor, Tensor, Tensor]:
        """Linear functions below them: least values (…,) for t in the box, rows (…, m), and δ (…, m).

        With δ ≥ 0 so large that bend + diag(δ) has no negative eigenvalue, f(t) + Σ δ·(t² − 1) ≤ f(t) is convex, and
        above each of its tangents. The tangent is taken where that is about lowest, or in the middle if that is better.
        """
        shape = self.value.shape
        value, slopes, bend = self.value.flatten(), *(t.flatten(0, len(shape) - 1) for t in self[1:])
        delta = _convex(bend)
        convex = bend + torch.diag_embed(delta)
        t, steep = torch.zeros_like(slopes), 2 * convex.diagonal(dim1=1, dim2=2)
        for _ in range(SWEEPS):
            for i in range(t.shape[1]):
                fall = slopes[:, i] + 2 * (convex[:, i] * t).sum(1) - steep[:, i] * t[:, i]
                t[:, i] = (-fall / steep[:, i]).nan_to_num(0.0).clamp(-1, 1)
        half = (convex @ t[:, :, None])[:, :, 0]
        row = slopes + 2 * half
        size = value.abs() + slopes.abs().sum(1) + 4 * convex.abs().sum((1, 2))
        least, middle = -(half * t).sum(1) - row.abs().sum(1), -slopes.abs().sum(1)
        row = torch.where((middle > least)[:, None], slopes, row)
        least = torch.maximum(least, middle) + value - delta.sum(1) - ROUNDING * size
        return least.view(shape), row.view(*shape, -1), delta.view(*shape, -1)


def _convex(bend: Tensor) -> Tensor:
    """δ (N, m) so that bend (N, m, m) + diag(δ) has no negative eigenvalue: by its diagonal, or by its least one."""
    diagonal = bend.diagonal(dim1=1, dim2=2)
    total = bend.abs().sum(2)
    delta = (total - diagonal.abs() - diagonal + ROUNDING * total).clamp(min=0)
    some = (delta.any(1) & torch.isfinite(total).all(1)).nonzero().flatten()
    if len(some):
        least = torch.linalg.eigvalsh(bend[some])[:, 0]
        same = (ROUNDING * total[some].sum(1) - least).clamp(min=0)[:, None].expand_as(delta[some])
        delta[some] = torch.where((same.sum(1) < delta[some].sum(1))[:, None], same, delta[some])
    return delta


def total_size(rows: Rows) -> Tensor:
    """The sums (R,) of the sizes of coefficients: as a product, which is far faster than a sum or a norm of each."""
    sizes = rows.coefficients.flatten(1).abs()
    return sizes @ sizes.new_ones(sizes.shape[1])


class Curves:
    """Passes rows back to quadratic functions of the `moving` inputs (m,), over boxes of which `found` is known.

    `forms` are those of the factors of every product that is passed.
    """

    def __init__(self, network: Network, found: SiteBounds, moving: Tensor, forms: dict[int, tuple[Form, Form]]):
        self.network, self.found, self.moving, self.forms = network, found, moving, forms
        self.columns = 1 + len(moving)
        self.bands: dict[int, Band] = {}
        for i, lines in found.lines.items():
            site = network.nodes[i]
            assert isinstance(site, Site)
            self.bands[i] = band(site, lines, *found.bounds[i])

    def below(
        self, node: int, spec: Tensor, offset: Tensor, box: Tensor, budget: Budget, watch: Watch | None = None
    ) -> Quadratics:
        """Functions below spec·values + offset, R rows over a vector `node`, each in its `box` (R,).

        `watch` sees the rows on their way, with the columns of each behind each other.
        """
        count, m = len(spec), len(self.moving)
        lost, bend = spec.new_zeros(count), spec.new_zeros(count, m, m)

        def at_node(i: int, rows: Rows) -> None:
            lost.add_(total_size(rows).view(count, -1).sum(1), alpha=self.found.losses[i])
            if watch is not None:
                watch(i, rows)

        whole, constant = spec.new_zeros(count, self.columns, spec.shape[1]), spec.new_zeros(count, self.columns)
        whole[:, 0], constant[:, 0] = spec, offset
        pending = {node: Rows(whole.flatten(0, 1))}
        at_site, at_product = self._at_site(box, lost), self._at_product(box, lost, bend)
        rows, passed = pass_back(self.network, pending, constant.flatten(), at_site, at_node, budget, at_product)
        a = rows.whole(self.network.nodes[0].shape).coefficients.flatten(1).view(count, self.columns, -1)
        center, radius = (t.flatten(1).index_select(0, box) for t in (self.found.center, self.found.radius))
        constant = passed.view(count, -1) + (a @ center[:, :, None])[:, :, 0]
        still = radius.index_fill(1, self.moving, 0.0)  # inputs that are known but for rounding
        lost.add_((a.abs().sum(1) * still).sum(1))
        a = a[:, :, self.moving] * radius[:, None, self.moving]
        bend = bend + a[:, 1:]
        return Quadratics(constant[:, 0] - lost, constant[:, 1:] + a[:, 0], (bend + bend.transpose(1, 2)) / 2)

    def _at_site(self, box: Tensor, lost: Tensor) -> AtSite:
        """A coefficient a(t) of one sign takes the line below or above; of one that changes its sign, a line between.

        Where a(t) is from a − r to a + r with r > |a|, a line at the share θ = (r − a) / 2r of the band's height costs
        the same at both ends, (r + a)·θ times the height, and less between them. That is added to what is `lost` (R,).
        """

        def at_site(i: int, rows: Rows) -> tuple[Rows, Tensor]:
            lines, between = self.found.lines[i], self.bands[i]
            a = rows.whole(lines.lower_slope.shape[1:]).coefficients.unflatten(0, (-1, self.columns))
            first, reach = a[:, 0], a[:, 1:].abs().sum(1)
            low, shift, high, above, slope, start, height = (t.index_select(0, box) for t in (*lines, *between))
            changes, positive = reach > first.abs(), first > 0
            part = ((reach - first) / (2 * reach)).nan_to_num(0.0, 0.0, 0.0)
            slope = torch.where(changes, slope, torch.where(positive, low, high))
            start = torch.where(changes, start + part * height, torch.where(positive, shift, above))
            cost = torch.where(changes, (reach + first) * part * height * (1 + ROUNDING), 0.0)
            lost.add_(cost.flatten(1).sum(1))
            constant = a.flatten(2) @ start.flatten(1)[:, :, None]
            return Rows((a * slope[:, None]).flatten(0, 1)), constant.flatten()

        return at_site

    def _at_product(self, box: Tensor, lost: Tensor, bend: Tensor) -> AtProduct:
        """Rows over products become rows over their factors, and add to the `bend` (R, m, m) at the inputs.

        That is for the constant part of a coefficient. The rest, which would make it a function of the third degree,
        goes to planes in the middle, and what these leave is `lost` (R,).
        """

        def at_product(i: int, rows: Rows) -> tuple[dict[int, Rows], Tensor]:
            node = self.network.nodes[i]
            assert isinstance(node, Product)
            same = rows.whole(node.shape)
            a = same.coefficients.flatten(1).unflatten(0, (-1, self.columns))
            one, other = (Form(*(t.index_select(0, box) for t in form)) for form in self.forms[i])
            first, rest = a[:, :1], a[:, 1:].abs().sum(1)
            left, right = (first * form.slopes.transpose(1, 2) for form in (one, other))
            parts = []
            for form, by in ((other, right), (one, left)):  # what stands at each is what the other is
                part = a * form.middle[:, None]
                part[:, 1:] += by
                parts.append(Rows(part.flatten(0, 1).unflatten(1, node.shape)))
            bend.sub_(left @ other.slopes)
            constant = -(a @ (one.middle * other.middle)[:, :, None])[:, :, 0]
            constant[:, 1:] -= (left @ other.middle[:, :, None] + right @ one.middle[:, :, None])[:, :, 0]
            cost = first[:, 0].abs() * one.error * other.error + rest * one.reach * other.reach
            size = (first[:, 0].abs() + rest) * (one.middle.abs() + one.reach) * (other.middle.abs() + other.reach)
            lost.add_((cost + share(4 * (a.shape[2] + self.columns)) * size + UNDERFLOW).sum(1))
            places = (*node.factors(self.network.nodes), *node.inputs[2:])
            return dict(zip(places, (*parts, same, same), strict=True)), constant.flatten()

        return at_product
