"""Which images intervals alone certify: the cheapest proof there is."""

import copy

import torch
from torch import Tensor, nn

from lingraft.attack.ball import bounds
from lingraft.data import Batches, ImageSet
from lingraft.differentiable.graph import graph_of
from lingraft.differentiable.intervals import interval_bounds
from lingraft.differentiable.margins import margin_intervals
from lingraft.verification.margin import MARGIN


def certified_by_intervals(
    model: nn.Module, data: ImageSet, eps: float, *, batch: int = 256, device: torch.device | str = "cpu"
) -> Tensor:
    """Which images keep their label in the whole ball of radius ε, cut to [0, 1]: (N,), bool, on the CPU.

    Interval bounds of the margins, in float64, above the margin that every proof here has to reach. False means
    nothing: the verifier may well prove such an image.
    """
    device = torch.device("cpu" if torch.device(device).type == "mps" else device)  # mps has no float64
    exact = copy.deepcopy(model).to(device, torch.float64).eval()
    graph = graph_of(exact)
    parts = []
    with torch.inference_mode():
        for images, labels in Batches(data, batch, device=device):
            found = interval_bounds(graph, *bounds(images.double(), eps))
            margins = margin_intervals(graph, found.last, labels).lower
            parts.append(((margins > MARGIN).sum(1) == margins.shape[1] - 1).cpu())
    return torch.cat(parts)
