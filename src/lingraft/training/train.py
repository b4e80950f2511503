"""Training a network robustly, as its settings say."""

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import nn

from lingraft.attack.evaluation import evaluating
from lingraft.data import ImageSet
from lingraft.device import device_of
from lingraft.training.callbacks import OnEpoch, print_epoch
from lingraft.training.config import TrainingConfig, make_loss
from lingraft.training.history import History
from lingraft.training.loop import Destination, Plan, TrainingData, fit
from lingraft.training.loss import Loss, ScheduledLoss


def train_network(
    model: nn.Module,
    data: TrainingData,
    config: TrainingConfig,
    destination: Destination,
    *,
    loss: Loss | ScheduledLoss | None = None,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> History:
    """Train `model` in place and keep everything in a run; see `fit` for what is written and promised.

    A `loss` takes the place of that of the configured method.
    """
    minimized = make_loss(config) if loss is None else loss
    if isinstance(minimized, ScheduledLoss):
        destination.description.check_fits(data.train, "training")
        data.require_ball(config)
        _check_bounded(model.to(device), minimized, data.train)
    plan = Plan(
        config,
        minimized,
        [{"params": list(model.parameters()), "lr": config.lr, "weight_decay": config.weight_decay}],
        {**config.as_dict(), "augment": data.augment, **named_loss(loss)},
        certify=config.certified,
        keep_from=config.growth.full_from,
    )
    return fit(model, data, plan, destination, device=device, on_epoch=on_epoch)


def named_loss(loss: Loss | ScheduledLoss | None) -> dict[str, Any]:
    """What the settings say of a loss of the user's own: a run goes on with the same one only."""
    if loss is None:
        return {}
    return {"loss": repr(loss) if is_dataclass(loss) else getattr(loss, "__qualname__", type(loss).__qualname__)}


def _check_bounded(model: nn.Module, loss: ScheduledLoss, data: ImageSet) -> None:
    """Layers that cannot be bounded are an error before anything is written."""
    device = device_of(model)
    one = torch.zeros(1, dtype=torch.long)
    with evaluating(model):
        images, labels = data.pixels(one).to(device), data.labels[one].to(device)
        loss.at(0.0)(model, images, labels, torch.Generator(device))
