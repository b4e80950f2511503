"""Moving in the ℓ∞ ball around an image, cut to the range of values: where every attack has to stay."""

import torch
from torch import Tensor

from lingraft.attack.batch_noise import noise_like
from lingraft.ball import Ball, Eps


def bounds(images: Tensor, eps: Ball | Eps) -> tuple[Tensor, Tensor]:
    """Lowest and highest allowed values, each of the shape of `images`."""
    return Ball.of(eps).bounds(images)


def uniform_start(images: Tensor, eps: Ball | Eps, generator: torch.Generator) -> Tensor:
    """A point drawn uniformly from the ball around each image, then moved into the range of values."""
    ball = Ball.of(eps)
    if isinstance(ball.eps, float):
        reach = ball.eps
        noise = noise_like(images, lambda empty: empty.uniform_(-reach, reach, generator=generator))
    else:
        noise = noise_like(images, lambda empty: empty.uniform_(-1, 1, generator=generator)).mul_(ball.reach(images))
    return ball.cut(noise.add_(images))


def ascend(point: Tensor, gradient: Tensor, step: float | Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """One step along the sign of the gradient, projected to the box between `lower` and `upper`.

    `step` is its size, or the size for each feature, of a shape that broadcasts to that of `point`.
    """
    if isinstance(step, Tensor):
        return torch.addcmul(point, gradient.sign(), step).clamp_(lower, upper)
    return torch.add(point, gradient.sign(), alpha=step).clamp_(lower, upper)
