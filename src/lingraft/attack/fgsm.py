"""The fast gradient sign method."""

from torch import Tensor, nn

from lingraft.attack.ball import ascend
from lingraft.attack.gradient import cross_entropy, input_gradient
from lingraft.ball import Ball, Eps


def fgsm(model: nn.Module, images: Tensor, labels: Tensor, eps: Ball | Eps) -> Tensor:
    """One step of size ε along the sign of the gradient of the cross entropy.

    Paper: Goodfellow, Shlens and Szegedy, "Explaining and harnessing adversarial examples", ICLR 2015.
    Shape: images (N, *shape), labels (N,) → (N, *shape), within ε of the images and in the range of values, which is
    [0, 1] unless a `Ball` says another.
    """
    ball = Ball.of(eps)
    gradient, _ = input_gradient(model, images, cross_entropy(labels))
    return ascend(images, gradient, ball.reach(images), *ball.bounds(images))
