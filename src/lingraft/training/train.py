"""Training a network robustly, by name of the method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from lingraft.attack.evaluation import evaluating
from lingraft.data import ImageSet
from lingraft.device import device_of
from lingraft.runs import ModelDescription, Run
from lingraft.training.certified import IntervalTraining, MixedTraining
from lingraft.training.config import TrainingConfig
from lingraft.training.fast import FastAdversarialLoss
from lingraft.training.history import Epoch, History
from lingraft.training.loop import Plan, fit, print_epoch
from lingraft.training.loss import Loss, ScheduledLoss
from lingraft.training.madry import PgdLoss
from lingraft.training.standard import StandardLoss
from lingraft.training.trades import TradesLoss


def make_loss(config: TrainingConfig) -> Loss | ScheduledLoss:
    """The loss of the configured method; with ε = 0 nothing is attacked and every method is standard training."""
    if config.eps == 0:
        return StandardLoss()
    if config.method == "fat":
        return FastAdversarialLoss(config.eps, config.fgsm_step, config.grad_align)
    if config.method == "pgd":
        return PgdLoss(config.eps, config.attack_steps)
    if config.method == "mtl-ibp":
        return MixedTraining(config.eps, config.growth, config.alpha, config.attack_steps, config.regularization)
    if config.certified:
        crown = config.method == "crown-ibp"
        return IntervalTraining(config.eps, config.growth, config.kappa, config.regularization, crown)
    return TradesLoss(config.eps, config.attack_steps, config.trades_beta)


def make_plan(
    config: TrainingConfig,
    loss: Loss | ScheduledLoss,
    groups: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    *,
    augment: bool,
    certify: bool,
    keep_from: int = 0,
) -> Plan:
    """What `fit` needs to train with this loss and these parameter groups as the config says; fields as in `Plan`."""
    return Plan(
        loss=loss,
        groups=groups,
        schedule=config.learning_rate(),
        settings=settings,
        eps=config.eps,
        epochs=config.epochs,
        batch=config.batch,
        optimizer=config.optimizer,
        momentum=config.momentum,
        clip=config.clip,
        seed=config.seed,
        augment=augment,
        validation_steps=config.validation_steps,
        validation_images=config.validation_images,
        keep_from=keep_from,
        certify=certify,
        keep_certified=config.keep_certified,
    )


def train(
    model: nn.Module,
    train: ImageSet,
    validation: ImageSet,
    config: TrainingConfig,
    run: Run,
    description: ModelDescription,
    *,
    augment: bool = False,
    device: torch.device | str = "cpu",
    restart: bool = False,
    report: Callable[[Epoch], None] = print_epoch,
) -> History:
    """Train `model` in place and keep everything in `run`; see `fit` for what is written and promised."""
    loss = make_loss(config)
    if isinstance(loss, ScheduledLoss):
        description.check_fits(train, "training")
        _check_bounded(model.to(device), loss, train)
    plan = make_plan(
        config,
        loss,
        [{"params": list(model.parameters()), "lr": config.lr, "weight_decay": config.weight_decay}],
        {**config.as_dict(), "augment": augment},
        augment=augment,
        certify=config.certified,
        keep_from=config.growth.full_from if config.certified else 0,
    )
    return fit(model, train, validation, run, plan, description, device=device, restart=restart, report=report)


def _check_bounded(model: nn.Module, loss: ScheduledLoss, data: ImageSet) -> None:
    """Layers that cannot be bounded are an error before anything is written."""
    device = device_of(model)
    one = torch.zeros(1, dtype=torch.long)
    with evaluating(model):
        images, labels = data.pixels(one).to(device), data.labels[one].to(device)
        loss.at(0.0)(model, images, labels, torch.Generator(device))
