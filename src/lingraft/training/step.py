"""One step of training."""

import math

import torch
from torch import Tensor, nn

from lingraft.training.distributed import part_of
from lingraft.training.loss import Figures, Loss


def take_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    images: Tensor,
    labels: Tensor,
    generator: torch.Generator,
    clip: float | None = None,
) -> tuple[float, Figures]:
    """Step down the gradient of the loss on a batch, unless the loss is not finite; gives the loss and its figures.

    A gradient longer than `clip` is shortened to it.
    """
    with part_of(images, labels) as part:
        value, figures = loss(model, part.images, part.labels, generator)
    number, figures = part.mean(value, figures)
    if math.isfinite(number):
        optimizer.zero_grad()
        # With respect to the weights only: a loss that differentiates an input gradient has the images in its graph.
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        value.backward(inputs=parameters)
        part.average_gradients(parameters)
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
    return number, figures
