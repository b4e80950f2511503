"""Adversarial training with PGD."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.attack import pgd
from lingraft.ball import Ball, Eps
from lingraft.training.loss import Figures


@dataclass(frozen=True)
class PgdLoss:
    """Cross entropy at the end of a PGD attack with one random start.

    Paper: Madry et al., "Towards deep learning models resistant to adversarial attacks", ICLR 2018.
    """

    eps: Ball | Eps
    steps: int = 10

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        logits = model(pgd(model, images, labels, self.eps, generator, self.steps))
        return F.cross_entropy(logits, labels), {
            "adversarial_accuracy": (logits.detach().argmax(1) == labels).float().mean()
        }
