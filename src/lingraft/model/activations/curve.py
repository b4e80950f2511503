"""Lines below and above a function that is convex or concave between known points, and how far it is from linear.

Any slope m will do for a line: what makes the line sound is its intercept, the largest (or smallest) value of
g(z) = f(z) − m·z on the interval, and that is found whatever m is. Between two neighbouring breaks f is convex,
concave or a line, so g is as well, and its largest value there is at one of the ends, unless f is concave: then the
derivative f' − m falls, and bisection keeps a bracket [a, b] around the place where it changes its sign. On the bracket
the concave g lies below its tangent at a, so max g ≤ g(a) + [f'(a) − m]₊·(b − a). This is the bound that is taken: it
is sound after any number of steps, and when the bracket is 1e-6 wide the last term is about 1e-12. Beyond ±reach the
function is a line up to `rest`, so that g is largest at the ends there as well, up to `rest`. Rounding of f, f' and the
breaks is paid for by a slack that is larger. For the smallest value, the same of −f.

The slopes are chosen so that the lines are close together in the middle of the interval, or where else they are wanted
to be: of the chords between a few points left and a few right of it, the one that is highest there (for the line
above). Convex functions get the chord of
the whole interval that way, concave ones almost the tangent in the middle, and all others about what touches twice.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.model.activations.record import Lines

#: Widens lines by more than float64 can round away in computing them: at least this, and a share of what is computed.
SLACK, SHARE = 1e-10, 64 * 2.0**-53

#: How wide the bracket of a bisection may be in the end.
_WIDTH = 1e-6

#: Where the points are between which chords are taken, as a share of the way from the middle to an end.
_AWAY = (1.0, 0.75, 0.5, 0.25, 0.05)

#: Golden-section search for the gap: reduction of the bracket, steps, and points that see how far a function is from a
#: line: as shares of the interval, and as shares of the function's reach, from 0 on both sides.
_GOLDEN, _GOLDEN_STEPS = (math.sqrt(5) - 1) / 2, 40
_EVENLY, _NEAR = torch.linspace(0, 1, 33, dtype=torch.float64), torch.linspace(0, 1, 31, dtype=torch.float64) ** 2


@dataclass(frozen=True)
class Curve:
    """f, its derivative (from the right at breaks), and what is known of its form."""

    f: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    #: where its form changes, rising: inflections, and bends, at which it need not have a derivative
    breaks: tuple[float, ...]
    #: the form of each of the pieces before, between and after the breaks: 1 convex, −1 concave, 0 a line
    forms: tuple[int, ...]
    #: beyond ±reach, which lies outside of all breaks, it differs from a line by at most `rest`
    reach: float
    rest: float = 1e-14

    def __post_init__(self) -> None:
        if len(self.forms) != len(self.breaks) + 1 or max(map(abs, self.breaks), default=0.0) >= self.reach:
            raise LingraftError("a curve has a form before, between and after its breaks, which lie within its reach.")

    def lines(self, lower: Tensor, upper: Tensor, place: float | Tensor = 0.5) -> Lines:
        """Lines on [lower, upper]; differentiable, where the ends are, with slopes that count as constants.

        They are close together at a `place` between the ends, as a share of the way: a number, or a tensor.
        """
        below, above = (self._slope(lower.detach(), upper.detach(), sign, place) for sign in (-1, 1))
        lowest, highest = -self._largest(below, lower, upper, -1), self._largest(above, lower, upper, 1)
        size = torch.maximum(lower.abs(), upper.abs()).detach()
        known = SHARE * (self.f(lower).abs() + self.f(upper).abs()).detach()
        slack = [SLACK + self.rest + known + SHARE * slope.abs() * size for slope in (below, above)]
        return Lines(below, lowest - slack[0], above, highest + slack[1])

    def between(self, lower: Tensor, upper: Tensor, lowest: float) -> tuple[Tensor, Tensor]:
        """Bounds on [lower, upper] of a function that falls up to the point `lowest` and rises from there."""
        at_lower, at_upper = self.f(lower), self.f(upper)
        within = (lower < lowest) & (upper > lowest)
        least = self.f(torch.full_like(lower, lowest))
        low, high = torch.minimum(at_lower, at_upper), torch.maximum(at_lower, at_upper)
        slack = 1e-12 * (1 + high.detach().abs())  # where it is next to 0, rounding is no share of it
        return torch.where(within, least, low) - slack, high + slack

    def gap(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The least spread of f(z) − m·z over slopes m, which is convex in m.

        The slope is found by what is seen of the spread at many points, the spread itself as for a line.
        """
        near = torch.cat([torch.tensor(self.breaks), self.reach * _NEAR, -self.reach * _NEAR]).to(lower)
        shape = (-1,) + (1,) * lower.dim()
        z = torch.cat([
            lower + _EVENLY.to(lower).view(shape) * (upper - lower),
            near.view(shape).expand(-1, *lower.shape).clamp(lower, upper),
        ])  # fmt: skip
        values, slopes = self.f(z), self.derivative(z)
        low, high = slopes.amin(0), slopes.amax(0)

        def spread(m: Tensor) -> Tensor:
            rest = torch.addcmul(values, m, z, value=-1)
            return rest.amax(0) - rest.amin(0)

        for _ in range(_GOLDEN_STEPS):
            left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            smaller = spread(left) < spread(right)
            low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
        best = (low + high) / 2
        return (self._largest(best, lower, upper, 1) + self._largest(best, lower, upper, -1)).clamp(min=0)

    @torch.no_grad()
    def _slope(self, lower: Tensor, upper: Tensor, sign: int, place: float | Tensor) -> Tensor:
        """The slope of the highest (sign 1) or lowest (−1) chord over a place of the interval, 0 < place < 1."""
        width = upper - lower
        at = (1 - place) * lower + place * upper
        away = torch.tensor(_AWAY).to(lower).view(-1, *(1,) * lower.dim())
        before, behind = place * away, (1 - place) * away
        left = sign * self.f((at - before * width).clamp(lower, upper))
        right = sign * self.f((at + behind * width).clamp(lower, upper))
        total = before[:, None] + behind[None]
        height = (behind[None] / total) * left[:, None] + (before[:, None] / total) * right[None]
        best = height.flatten(0, 1).argmax(0, keepdim=True)
        one, other = best.div(len(_AWAY), rounding_mode="floor"), best % len(_AWAY)
        rise = (right.gather(0, other) - left.gather(0, one))[0]
        far = (place * away.flatten()[one] + (1 - place) * away.flatten()[other])[0] * width
        short = width <= 2 * torch.finfo(lower.dtype).eps ** 0.5 * (1 + at.abs())
        return torch.where(short, self.derivative(at), sign * rise / torch.where(short, 1.0, far))

    def _largest(self, slope: Tensor, lower: Tensor, upper: Tensor, sign: int) -> Tensor:
        """A number that sign·(f(z) − slope·z) does not exceed on [lower, upper]."""
        ends = [-self.reach, *self.breaks, self.reach]
        inner = [torch.full_like(lower, end).clamp(lower, upper) for end in ends]
        points, beyond = [lower, upper, *inner], [torch.zeros_like(slope)] * (2 + len(ends))
        for form, left, right in zip(self.forms, inner, inner[1:], strict=False):
            if form == -sign:
                point, excess = self._top(slope, left.detach(), right.detach(), sign)
                points.append(point)
                beyond.append(excess)
        z = torch.stack(points)
        return (sign * (self.f(z) - slope * z) + torch.stack(beyond)).amax(0)

    @torch.no_grad()
    def _top(self, slope: Tensor, left: Tensor, right: Tensor, sign: int) -> tuple[Tensor, Tensor]:
        """Where sign·(f(z) − slope·z), concave on [left, right], is largest, and by how much that may exceed it."""
        widest = float((right - left).nan_to_num(nan=2 * self.reach).amax()) if left.numel() else 0.0
        for _ in range(math.ceil(math.log2(max(widest, _WIDTH) / _WIDTH))):
            middle = (left + right) / 2
            rises = sign * (self.derivative(middle) - slope) > 0
            left, right = torch.where(rises, middle, left), torch.where(rises, right, middle)
        return left, (sign * (self.derivative(left) - slope)).clamp(min=0) * (right - left)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that is negative at `low` and positive at `high` changes its sign, by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return high
