"""Bounds that training differentiates, put as the verifier puts them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.training.differentiable import Interval, graph_of, interval_bounds
from lingraft.training.differentiable.crown import crown_lower


def crown_margins(model: nn.Module, box: Interval, labels: Tensor) -> Tensor:
    """CROWN's lower bounds (N, 3) of the margins, a class at a time."""
    graph = graph_of(model)
    found = interval_bounds(graph, *box)
    objectives = F.one_hot(labels, 3).double().unsqueeze(1) - torch.eye(3).double()
    return torch.stack([crown_lower(graph, found, box, objectives[:, k]) for k in range(3)], 1)
