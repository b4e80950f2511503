"""Projected gradient descent (ascent on the loss)."""

from typing import Any

import torch
from torch import Tensor, nn

from lingraft.attack.ball import ascend, uniform_start
from lingraft.attack.gradient import Objective, cross_entropy, input_gradient
from lingraft.ball import Ball, Eps


def default_step(eps: Any, steps: int) -> Any:
    """2.5·ε/steps, as Madry et al. and the experiments of the paper.

    The steps together reach 2.5 ε: enough to cross the ball from any start and still move along its boundary.
    """
    return 2.5 * eps / steps


def ascend_repeatedly(
    model: nn.Module,
    images: Tensor,
    start: Tensor,
    objective: Objective,
    eps: Ball | Eps,
    steps: int,
    step_size: float | None = None,
) -> Tensor:
    """`steps` projected steps along the sign of the gradient of `objective`, from `start`, around `images`.

    A step has the size `step_size`, by default 2.5·ε/steps.
    """
    ball = Ball.of(eps)
    lower, upper = ball.bounds(images)
    step = default_step(ball.reach(images), steps) if step_size is None else step_size
    point = start
    for _ in range(steps):
        gradient, _ = input_gradient(model, point, objective)
        point = ascend(point, gradient, step, lower, upper)
    return point


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    eps: Ball | Eps,
    generator: torch.Generator,
    steps: int = 10,
    step_size: float | None = None,
) -> Tensor:
    """PGD on the cross entropy from one uniform random start; `generator` must be on the device of the images.

    Paper: Madry et al., "Towards deep learning models resistant to adversarial attacks", ICLR 2018.
    Shape: images (N, *shape), labels (N,) → (N, *shape), within ε of the images and in the range of values, which is
    [0, 1] unless a `Ball` says another.
    """
    start = uniform_start(images, eps, generator)
    return ascend_repeatedly(model, images, start, cross_entropy(labels), eps, steps, step_size)
