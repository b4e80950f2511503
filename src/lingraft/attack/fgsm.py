"""The fast gradient sign method."""

from torch import Tensor, nn

from lingraft.attack.ball import ascend, bounds
from lingraft.attack.gradient import cross_entropy, input_gradient


def fgsm(model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    """One step of size ε along the sign of the gradient of the cross entropy.

    Paper: Goodfellow, Shlens and Szegedy, "Explaining and harnessing adversarial examples", ICLR 2015.
    Shape: images (N, C, H, W) in [0, 1], labels (N,) → (N, C, H, W) in [0, 1], within ε of the images.
    """
    gradient, _ = input_gradient(model, images, cross_entropy(labels))
    return ascend(images, gradient, eps, *bounds(images, eps))
