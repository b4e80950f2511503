"""The small box of SABR: a part of the ball that holds an attacked image."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lingraft.attack import pgd
from lingraft.attack.ball import bounds
from lingraft.ball import Ball, Eps
from lingraft.training.differentiable import Interval


@dataclass(frozen=True)
class SmallBox:
    """A box with a `share` λ of the ball's width, as near to an attacked image (`steps` of PGD) as the ball allows.

    Paper: Müller et al., "Certified training: small boxes are all you need", ICLR 2023. At λ = 1 it is the ball.
    """

    share: float
    steps: int = 1

    def around(
        self, model: nn.Module, images: Tensor, labels: Tensor, eps: Ball | Eps, generator: torch.Generator
    ) -> Interval:
        """Its ends, (N, *shape) each, inside the ball and the range of values; the attack draws from `generator`."""
        attacked = pgd(model, images, labels, eps, generator, self.steps)
        return small_box(attacked, Interval(*bounds(images, eps)), self.share)


def small_box(point: Tensor, box: Interval, share: float) -> Interval:
    """The box with a `share` of the width of `box`, inside it, whose center is as near to `point` as that allows."""
    lower, upper = box
    half = (upper - lower) * (share / 2)
    center = torch.minimum(torch.maximum(point, lower + half), upper - half)
    # rounding alone could take it out of the box
    return Interval(torch.maximum(center - half, lower), torch.minimum(center + half, upper))
