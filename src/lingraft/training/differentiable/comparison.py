"""Bounds are compared with the model itself before anything is concluded from them.

torch.fx does not see all that a forward pass does: hooks, `+=` on another name of a tensor, changes in place of a view.
Bounds from its graph would then be those of another function.
"""

import copy
from weakref import WeakSet

import torch
from torch import Tensor, nn

from lingraft.attack.ball import bounds
from lingraft.ball import Ball, Eps
from lingraft.errors import LingraftError
from lingraft.training.differentiable.graph import BoundedGraph, graph_of
from lingraft.training.differentiable.intervals import Interval, interval_bounds
from lingraft.training.differentiable.margins import margin_intervals

#: Largest difference, as a share of the largest logit, in float64, where rounding makes far less of one.
_TOLERANCE = 1e-7
#: Images that a model is compared on when training begins.
_IMAGES = 8

_COMPARED: WeakSet[nn.Module] = WeakSet()


def in_float64(model: nn.Module, device: torch.device | str) -> tuple[nn.Module, nn.Module]:
    """Copies of a model in eval mode: in its own precision, and in float64."""
    own = copy.deepcopy(model).to(device).eval()
    return own, copy.deepcopy(own).double()


def require_agreement_once(model: nn.Module, images: Tensor, labels: Tensor, eps: Ball | Eps) -> None:
    """Compare a model that is about to be trained with its bounds on the first images it sees, the first time only."""
    if model in _COMPARED:
        return
    few, right = images[:_IMAGES].detach().cpu(), labels[:_IMAGES].cpu()
    with torch.no_grad():
        own, exact = in_float64(model, "cpu")
        graph, box = graph_of(exact), Interval(*bounds(few.double(), eps))
        margins = margin_intervals(graph, interval_bounds(graph, *box, rounded=True).last, right, rounded=True)
        require_agreement(own, exact, graph, box, right, margins)
    _COMPARED.add(model)


def require_agreement(
    own: nn.Module, exact: nn.Module, graph: BoundedGraph, box: Interval, labels: Tensor, margins: Interval
) -> None:
    """Refuse bounds (N, classes) of the margins over a box that the values of the model at its points contradict.

    `own` is the model in its own precision, `exact` the same in float64, whose graph it is. The margins must lie
    inside their bounds, and inside those of a single point, which leave room for nothing but rounding. Images for which
    the model gives NaN or infinity prove nothing either way.
    """
    generator = torch.Generator().manual_seed(0)
    share = torch.rand(box.lower.shape, generator=generator, dtype=torch.float64).to(box.lower)
    width = box.upper - box.lower
    inner, corner = (box.lower + part * width for part in (share, share.round()))
    for point in (box.lower + width / 2, box.lower, box.upper, corner, inner):
        logits = exact(point.clone())  # a model may change its input
        values = logits.gather(1, labels.unsqueeze(1)) - logits
        largest = logits.abs().amax(1, keepdim=True)
        _require_inside(values, margins, _TOLERANCE * largest)
        if point is inner:
            here = margin_intervals(graph, interval_bounds(graph, point, point, rounded=True).last, labels, True)
            _require_inside(values, here, _TOLERANCE * largest)
            rough, epsilon = own(point.to(dtype_of(own), copy=True)).double(), torch.finfo(dtype_of(own)).eps
            rounding = (here.upper - here.lower) * (epsilon / torch.finfo(torch.float64).eps)
            rough = rough.gather(1, labels.unsqueeze(1)) - rough
            _require_inside(rough, here, torch.maximum(epsilon**0.5 * largest, rounding))
            beside = exact(torch.cat([point[:1], share[:1]]))[:1]  # the first image in another batch
            beside = beside.gather(1, labels[:1].unsqueeze(1)) - beside
            _require_inside(beside, Interval(here.lower[:1], here.upper[:1]), _TOLERANCE * largest[:1])


def _require_inside(values: Tensor, within: Interval, slack: Tensor) -> None:
    inside = (values >= within.lower - slack) & (values <= within.upper + slack)
    if not bool((inside.all(1) | ~torch.isfinite(values).all(1)).all()):
        raise LingraftError(
            "bounds by intervals do not hold for this model: its forward pass does something that torch.fx does not"
            " see, such as a hook, a change in place of a tensor that has another name, or another precision, or it"
            " mixes the images of a batch. Write it with plain layers and operations that give new tensors."
        )


def dtype_of(model: nn.Module) -> torch.dtype:
    """The type of the numbers that a model computes with."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
