"""TRADES."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.attack.batch_noise import noise_like
from lingraft.attack.pgd import ascend_repeatedly
from lingraft.ball import PIXELS, Ball, Eps
from lingraft.training.loss import Figures


@dataclass(frozen=True)
class TradesLoss:
    """Cross entropy at the image plus β times how far (KL divergence) the prediction can get from it in the ball.

    Paper: Zhang et al., "Theoretically principled trade-off between robustness and accuracy", ICML 2019. The inner
    maximization is PGD on the divergence, from the image plus 0.001 times Gaussian noise, as in the authors' code; of
    data that are no pixels, whose size may be anything, plus ε/32 times the noise: as much at the authors' 8/255.
    """

    eps: Ball | Eps
    steps: int = 10
    beta: float = 6.0

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        at_image = model(images)
        expected = at_image.detach().softmax(1)

        def divergence(logits: Tensor) -> Tensor:
            return F.kl_div(logits.log_softmax(1), expected, reduction="sum")

        ball = Ball.of(self.eps)
        if ball.clip == PIXELS and isinstance(ball.eps, float):
            noise = noise_like(images, lambda empty: empty.normal_(0, 0.001, generator=generator))
        else:
            noise = noise_like(images, lambda empty: empty.normal_(generator=generator)).mul_(
                ball.reach(images, 1 / 32)
            )
        start = ball.cut(noise.add_(images))
        point = ascend_repeatedly(model, images, start, divergence, ball, self.steps)
        in_ball = model(point)
        kl = F.kl_div(in_ball.log_softmax(1), at_image.log_softmax(1), reduction="batchmean", log_target=True)
        figures = {
            "adversarial_accuracy": (in_ball.detach().argmax(1) == labels).float().mean(),
            "divergence": kl.detach(),
        }
        return F.cross_entropy(at_image, labels) + self.beta * kl, figures
