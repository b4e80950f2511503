"""One step of training."""

import math

import torch
from torch import Tensor, nn

from lingraft.training.loss import Figures, Loss


def take_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    images: Tensor,
    labels: Tensor,
    generator: torch.Generator,
) -> tuple[float, Figures]:
    """Step down the gradient of the loss on a batch, unless the loss is not finite; gives the loss and its figures."""
    value, figures = loss(model, images, labels, generator)
    number = value.item()
    if math.isfinite(number):
        optimizer.zero_grad()
        # With respect to the weights only: a loss that differentiates an input gradient has the images in its graph.
        value.backward(inputs=[parameter for group in optimizer.param_groups for parameter in group["params"]])
        optimizer.step()
    return number, figures
