"""The ℓ∞ ball of radius ε around an image, cut to the pixel range [0, 1]: where every attack has to stay."""

import torch
from torch import Tensor

from lingraft.attack.batch_noise import noise_like


def bounds(images: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Lowest and highest allowed pixels, each of the shape of `images`."""
    return (images - eps).clamp_(min=0), (images + eps).clamp_(max=1)


def uniform_start(images: Tensor, eps: float, generator: torch.Generator) -> Tensor:
    """A point drawn uniformly from the ball around each image, then clipped to [0, 1]."""
    noise = noise_like(images, lambda empty: empty.uniform_(-eps, eps, generator=generator))
    return noise.add_(images).clamp_(0, 1)


def ascend(point: Tensor, gradient: Tensor, step: float, lower: Tensor, upper: Tensor) -> Tensor:
    """One step of size `step` along the sign of the gradient, projected to the box between `lower` and `upper`."""
    return torch.add(point, gradient.sign(), alpha=step).clamp_(lower, upper)
