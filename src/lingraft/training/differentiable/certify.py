"""Which images intervals alone certify: the cheapest proof there is."""

import torch
from torch import Tensor, nn

from lingraft.ball import Ball, Eps
from lingraft.data import Batches, ImageSet
from lingraft.errors import LingraftError
from lingraft.solver.margin import proven
from lingraft.training.differentiable.comparison import dtype_of, in_float64, require_agreement
from lingraft.training.differentiable.graph import graph_of
from lingraft.training.differentiable.intervals import Interval, interval_bounds
from lingraft.training.differentiable.margins import margin_intervals


def certified_by_intervals(
    model: nn.Module, data: ImageSet, eps: Eps, *, batch: int = 256, device: torch.device | str = "cpu"
) -> Tensor:
    """Which images keep their label in the whole ball of radius ε, cut to the range of values: (N,), bool, on the CPU.

    Interval bounds of the margins, in float64 and less what rounding may have added, above the margin that every proof
    here has to reach, where the model itself gets the image right. False means nothing: the verifier may well prove
    such an image. Bounds that the model's own values contradict somewhere are a LingraftError.
    """
    device = torch.device("cpu" if torch.device(device).type == "mps" else device)  # mps has no float64
    own, exact = in_float64(model, device)
    graph, dtype = graph_of(exact), dtype_of(own)
    ball, parts, done = Ball.around(eps, data.images.shape, data.clip), list[Tensor](), 0
    with torch.inference_mode():
        for images, labels in Batches(data, batch, device=device):
            box = Interval(*ball.at(slice(done, done + len(images))).bounds(images.double()))
            done += len(images)
            last = interval_bounds(graph, *box, rounded=True).last
            margins = margin_intervals(graph, last, labels, rounded=True)
            if margins.lower.shape[1] < 2:
                raise LingraftError("the model has a single output, so there is no other class. Give two logits.")
            require_agreement(own, exact, graph, box, labels, margins)
            right = own(images.to(dtype, copy=True)).argmax(1) == labels  # rounding alone may make it wrong
            parts.append((right & (proven(margins.lower).sum(1) == margins.lower.shape[1] - 1)).cpu())
    return torch.cat(parts)
