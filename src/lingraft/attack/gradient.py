"""Gradients with respect to the input. Those of the weights are not computed."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: logits (N, classes) → a number to increase, the sum of one term for each image
Objective = Callable[[Tensor], Tensor]


def cross_entropy(labels: Tensor) -> Objective:
    """The cross entropy summed over the images, so that the gradient of one image does not depend on the others."""
    return lambda logits: F.cross_entropy(logits, labels, reduction="sum")


def input_gradient(
    model: nn.Module, images: Tensor, objective: Objective, *, differentiable: bool = False
) -> tuple[Tensor, Tensor]:
    """Gradient of the objective at `images`, of their shape, and the logits there (without a graph).

    With `differentiable` the gradient itself can be differentiated with respect to the weights.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        logits = model(images.clone())  # it may change them in place, which autograd refuses of the images themselves
        (gradient,) = torch.autograd.grad(objective(logits), images, create_graph=differentiable)
    return gradient, logits.detach()
