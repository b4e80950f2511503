"""How far an activation is from linear on an interval: what any relaxation of it must leave open.

The *gap* of a neuron with z ∈ [l, u] is the least vertical distance of two parallel lines with the activation between
them, twice the error of the best line. For a ReLU it is the t of the dual bound: −l·u/(u − l) if l < 0 < u, else 0.
"""

import math

import torch
from torch import Tensor

from lingraft.solver.nodes import Site
from lingraft.solver.relaxation import relax_relu

#: By how much an activation rises in all: what the gap tends to on ever longer intervals. A ReLU's has no limit.
RISE = {"sigmoid": 1.0, "tanh": 2.0}

#: A smooth neuron is called unstable where its gap is more than this share of its rise.
UNSTABLE_GAP = 0.01

#: Reduction of the bracket in each step of the golden-section search, and the number of steps.
_GOLDEN, _STEPS = (math.sqrt(5) - 1) / 2, 40


def gap(kind: str, lower: Tensor, upper: Tensor) -> Tensor:
    """The gap of an activation ("relu", "sigmoid", "tanh") on [lower, upper], ≥ 0, of their shape."""
    if kind == "relu":
        return relax_relu(lower, upper).upper_intercept
    # tanh(z) = 2·sigmoid(2z) − 1
    return 2 * _sigmoid_gap(2 * lower, 2 * upper) if kind == "tanh" else _sigmoid_gap(lower, upper)


def nonlinearity(site: Site, lower: Tensor, upper: Tensor) -> Tensor:
    """From 0 (linear) to 1, of the bounds' shape (…, *site): grafted neurons 0, an unstable ReLU 1, a stable one 0.

    A smooth neuron, which is never quite linear, has its gap as a share of its rise.
    """
    if site.kind == "relu":
        return ((lower < 0) & (upper > 0) & ~site.grafted).double()
    return (gap(site.kind, lower, upper) / RISE[site.kind]).masked_fill(site.grafted, 0.0)


def unstable(site: Site, lower: Tensor, upper: Tensor) -> Tensor:
    """What UNR counts: ReLUs that can take both signs, smooth neurons with a gap of more than 1 % of their rise."""
    return nonlinearity(site, lower, upper) > UNSTABLE_GAP


def _sigmoid_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """The least spread of sigmoid(z) − m·z over slopes m: it is convex in m, so a golden-section search finds it."""
    low, high = torch.zeros_like(lower), torch.full_like(lower, 0.25)
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        smaller = _spread(left, lower, upper) < _spread(right, lower, upper)
        low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
    return _spread((low + high) / 2, lower, upper)


def _spread(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """max − min of sigmoid(z) − slope·z on [lower, upper], at the ends or where the derivative is the slope."""
    value = (1 + (1 - 4 * slope).clamp(min=0).sqrt()) / 2  # of the sigmoid at the bend
    bend = torch.logit(value)
    points = (lower, upper, bend.clamp(lower, upper), (-bend).clamp(lower, upper))
    rest = torch.stack([torch.sigmoid(z) - slope * z for z in points])
    return rest.amax(0) - rest.amin(0)
