"""Projected gradient descent (ascent on the loss)."""

import torch
from torch import Tensor, nn

from lingraft.attack.ball import ascend, bounds, uniform_start
from lingraft.attack.gradient import Objective, cross_entropy, input_gradient


def default_step(eps: float, steps: int) -> float:
    """2.5·ε/steps, as Madry et al. and the experiments of the paper.

    The steps together reach 2.5 ε: enough to cross the ball from any start and still move along its boundary.
    """
    return 2.5 * eps / steps


def ascend_repeatedly(
    model: nn.Module, images: Tensor, start: Tensor, objective: Objective, eps: float, steps: int, step_size: float
) -> Tensor:
    """`steps` projected steps along the sign of the gradient of `objective`, from `start`, around `images`."""
    lower, upper = bounds(images, eps)
    point = start
    for _ in range(steps):
        gradient, _ = input_gradient(model, point, objective)
        point = ascend(point, gradient, step_size, lower, upper)
    return point


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    eps: float,
    generator: torch.Generator,
    steps: int = 10,
    step_size: float | None = None,
) -> Tensor:
    """PGD on the cross entropy from one uniform random start; `generator` must be on the device of the images.

    Paper: Madry et al., "Towards deep learning models resistant to adversarial attacks", ICLR 2018.
    Shape: images (N, C, H, W) in [0, 1], labels (N,) → (N, C, H, W) in [0, 1], within ε of the images.
    """
    step_size = default_step(eps, steps) if step_size is None else step_size
    start = uniform_start(images, eps, generator)
    return ascend_repeatedly(model, images, start, cross_entropy(labels), eps, steps, step_size)
