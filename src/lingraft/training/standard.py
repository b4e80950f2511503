"""Training without an attack."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.training.loss import Figures


@dataclass(frozen=True)
class StandardLoss:
    """Cross entropy at the images themselves: what adversarial training is with a ball of radius 0."""

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        return F.cross_entropy(model(images), labels), {}
