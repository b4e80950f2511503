"""What the training loop minimizes."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

#: name → a number without a graph, averaged over the epoch and written to the history
Figures = dict[str, Tensor]


class Loss(Protocol):
    """A loss or a regularizer: (model, images, labels, generator) → (a number to minimize, figures for the history).

    images: (N, *shape) in the range of values; labels: (N,). Everything random must be drawn from `generator`, which
    is on the device of the images: that is what makes a resumed run end with the same weights.
    """

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]: ...


@runtime_checkable
class ScheduledLoss(Protocol):
    """A loss that changes while training goes on."""

    def at(self, time: float) -> Loss:
        """The loss at a time in epochs, with the part of the running epoch as its fraction."""
        ...


def loss_at(loss: Loss | ScheduledLoss, time: float) -> Loss:
    """What is minimized at a time in epochs."""
    return loss.at(time) if isinstance(loss, ScheduledLoss) else loss


def total(*parts: tuple[float, Loss]) -> Loss:
    """The weighted sum of losses and regularizers: total((1, loss), (0.01, regularizer))."""

    def weighted_sum(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        value = torch.zeros((), device=images.device)
        figures: Figures = {}
        for weight, part in parts:
            one, more = part(model, images, labels, generator)
            value = value + weight * one
            figures |= more
        return value, figures

    return weighted_sum
