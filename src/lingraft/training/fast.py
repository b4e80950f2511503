"""Fast adversarial training with GradAlign, the loss of the paper (Section 4, equation of L_FAT + λ·R_GA)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.attack.ball import ascend, uniform_start
from lingraft.attack.gradient import cross_entropy, input_gradient
from lingraft.ball import Ball, Eps
from lingraft.training.loss import Figures


def misalignment(fixed: Tensor, gradient: Tensor) -> Tensor:
    """1 − cos of the angle between two gradients of one image, averaged over the images: GradAlign, R_GA.

    An image with a gradient of exactly 0 has no direction and is left out, as in the code of the authors.
    Shape: (N, *shape) twice → a number in [0, 2].
    """
    pixels = tuple(range(1, fixed.ndim))
    norm_fixed = torch.linalg.vector_norm(fixed, dim=pixels)
    norm = torch.linalg.vector_norm(gradient, dim=pixels)
    counted = (norm_fixed > 0) & (norm > 0)
    direction = fixed / torch.where(counted, norm_fixed, 1).view(-1, *(1 for _ in pixels))
    cosine = (direction * gradient).sum(pixels) / torch.where(counted, norm, 1)
    return torch.where(counted, 1 - cosine, 0).sum() / counted.sum().clamp(min=1)


@dataclass(frozen=True)
class FastAdversarialLoss:
    """Cross entropy at an FGSM point from a uniform start in the ball, plus λ times GradAlign.

    Papers: Wong, Rice and Kolter, "Fast is better than free", ICLR 2020; Andriushchenko and Flammarion,
    "Understanding and improving fast adversarial training", NeurIPS 2020.

    FGSM steps `step`·ε from the uniform start and is projected to the ball and to the range of values. GradAlign
    compares the gradient at the image with that at a uniform point of the ball. The authors draw that point anew; here
    it is the start of FGSM, which has the same distribution, so its gradient is computed once and serves both. Like in
    the code of the authors, the gradient at the image is a constant and only the one at the random point is
    differentiated: half of the double backward pass, and the regularizer turns the random gradients towards that of
    the image.

    That takes more than half of a step. With a `grad_align_share` below 1 only the first images of each batch, which
    is in random order, are aligned: the mean over them estimates that over all.
    """

    eps: Ball | Eps
    step: float = 1.25
    grad_align: float = 0.2
    grad_align_share: float = 1.0

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        ball = Ball.of(self.eps)
        start = uniform_start(images, ball, generator)
        aligned = self._aligned(len(images))
        gradients = [
            input_gradient(model, start[part], cross_entropy(labels[part]), differentiable=part.stop == aligned)[0]
            for part in (slice(0, aligned), slice(aligned, len(images)))
            if part.start < part.stop
        ]
        gradient = torch.cat([found.detach() for found in gradients])
        point = ascend(start, gradient, ball.reach(images, self.step), *ball.bounds(images))
        logits = model(point)
        loss = F.cross_entropy(logits, labels)
        figures = {"adversarial_accuracy": (logits.detach().argmax(1) == labels).float().mean()}
        if aligned:
            at_image, _ = input_gradient(model, images[:aligned], cross_entropy(labels[:aligned]))
            penalty = misalignment(at_image, gradients[0])
            loss = loss + self.grad_align * penalty
            figures["grad_align"] = penalty.detach()
        return loss, figures

    def _aligned(self, images: int) -> int:
        """How many images of a batch are aligned; all, where a part would have one image: batch norm needs two."""
        if self.grad_align == 0:
            return 0
        count = math.ceil(self.grad_align_share * images)
        return count if min(count, images - count) > 1 else images
