"""Bounds of the margins logit[label] − logit[other] and of the cross entropy, from those of the last layer's input."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lingraft.solver.intervals import share
from lingraft.training.differentiable.graph import BoundedGraph
from lingraft.training.differentiable.intervals import Interval


def margin_intervals(graph: BoundedGraph, last: Interval, labels: Tensor, rounded: bool = False) -> Interval:
    """Bounds (N, classes) of logit[label] − logit[k] from `IntervalBounds.last`; exactly 0 at the label itself.

    Where a linear layer gives the logits, the differences are folded into it: row k becomes W[label] − W[k]. That is
    tighter than the difference of the logits' own bounds, which lets the same neuron be high for one logit and low for
    the other. If `rounded`, they are widened by what rounding in float64 may have taken from them.
    """
    layer = graph.last_layer
    if layer is None:
        own = labels.unsqueeze(1)
        margins = Interval(last.lower.gather(1, own) - last.upper, last.upper.gather(1, own) - last.lower)
        if rounded:
            slack = share(2) * (last.lower.abs() + last.upper.abs()).amax(1, keepdim=True)
            margins = Interval(margins.lower - slack, margins.upper + slack)
        return Interval(*(end.scatter(1, own, 0.0) for end in margins))
    rows = layer.weight[labels].unsqueeze(1) - layer.weight
    shift = 0.0 if layer.bias is None else layer.bias[labels].unsqueeze(1) - layer.bias
    center, radius = ((last.upper + sign * last.lower).unsqueeze(2) / 2 for sign in (1, -1))
    middle = torch.bmm(rows, center).squeeze(2) + shift
    if rounded:  # the rows too are differences, of weights and biases that may be large
        loss = share(rows.shape[2])
        weights = layer.weight[labels].abs().unsqueeze(1) + layer.weight.abs()
        shifts = 0.0 if layer.bias is None else layer.bias[labels].abs().unsqueeze(1) + layer.bias.abs()
        slack = loss * (torch.bmm(weights, center.abs() + radius).squeeze(2) + shifts)
        spread = torch.bmm(rows.abs(), radius).squeeze(2) + slack
        return Interval(*(end.scatter(1, labels.unsqueeze(1), 0.0) for end in (middle - spread, middle + spread)))
    spread = torch.bmm(rows.abs(), radius).squeeze(2)
    return Interval(middle - spread, middle + spread)


def worst_cross_entropy(margins: Tensor, labels: Tensor) -> Tensor:
    """The mean cross entropy of logits −m, an upper bound of that of every image of the box if m ≤ its margins.

    Shape: lower bounds (N, classes) of the margins, 0 at the labels (N,) → a number.
    """
    return F.cross_entropy(-margins, labels)
