"""Training a network of the zoo or a module of the user's own, in a run folder."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from lingraft.data import DATASETS, ImageSet
from lingraft.data import load as load_data
from lingraft.device import device_of, limited_threads, resolve_device
from lingraft.errors import LingraftError
from lingraft.grafting import FineTuning, GraftingConfig, fine_tuning_defaults
from lingraft.model import zoo
from lingraft.model.plain import copied, plain
from lingraft.model.sites import grafted_activations
from lingraft.model.surgery import masks
from lingraft.names import lookup
from lingraft.report.run_figures import plot_history
from lingraft.runs import ModelDescription
from lingraft.runs.holding import holding
from lingraft.training import (
    Destination,
    History,
    Loss,
    ScheduledLoss,
    TrainingConfig,
    TrainingData,
    draw,
    train_network,
    with_preset,
)
from lingraft.training.callbacks import OnEpoch, print_epoch
from lingraft.training.distributed import joined, leads
from lingraft.work.given import Device, Folder, describe_own, device_for, name_of, run_of
from lingraft.work.tune import keep_training, tune_and_keep

#: Share of the training images, the last ones, that decide which epoch is the best where no others are given.
HELD_OUT = 0.1

#: Epochs of fine-tuning a grafted model: those of the laptop, and the paper's.
TUNING_EPOCHS = {"laptop": 15, "paper": 100}


def train(
    model: nn.Module | str,
    data: Any,
    validation: Any = None,
    *,
    eps: float | None = None,
    run: Folder | None = None,
    preset: str = "laptop",
    epochs: int | None = None,
    method: str = "fat",
    loss: Loss | ScheduledLoss | None = None,
    schedule: str | None = None,
    milestones: tuple[int, ...] | None = None,
    lr: float | None = None,
    line_lr: float | None = None,
    batch: int = 128,
    momentum: float = 0.9,
    weight_decay: float | None = None,
    optimizer: str | None = None,
    clip: float | None = None,
    initialization: str | None = None,
    grad_align: float = 0.2,
    attack_steps: int | None = None,
    trades_beta: float = 6.0,
    warm_up: int | None = None,
    ramp: int | None = None,
    kappa: tuple[float, float] = (0.0, 0.0),
    alpha: float = 0.01,
    regularization: float = 0.5,
    validation_images: int | None = None,
    augment: bool | None = None,
    parent: Folder | None = None,
    seed: int = 0,
    device: Device = None,
    threads: int | None = None,
    restart: bool = False,
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> nn.Module:
    """A robustly trained copy of `model` in eval mode, kept in `run` if there is one; `model` itself is not changed.

    `model` may be the name of a network of the zoo, `data` that of a data set, which has validation images, a default
    of `eps` (the paper's) and of `augment` (random crops and flips) of its own. The options are those of `lingraft
    train`; what is None is as the `preset` has it for the `method`: fast adversarial training ("fat") or any other of
    `lingraft.training.METHODS`. A `loss` of your own takes its place, see `lingraft.training.Loss`. With `eps` = 0
    nothing is attacked. A module is trained from the weights it has, unless `initialization` draws new ones.

    A plain model is trained with one cycle of the learning rate, up to `lr` (default: 0.1; certified methods: 0.002).
    A grafted model is fine-tuned as in the paper, down from `lr` (default: 0.001) for the weights and from `line_lr`
    (default: 0.01) for slopes and intercepts; `parent` is the run that it comes from.

    The epoch with the best robust accuracy on `validation` is kept; without it, the last tenth of `data` is put aside
    for that. `on_epoch`, a function of the history or a list of such, is called after each epoch, and ends training by
    returning True (default: a line is printed; see `lingraft.training.callbacks`). Called again with the same arguments
    it goes on after a stop, and leaves a finished run as it is; with other arguments or data it refuses, unless
    `restart` throws away what is there.
    """
    if not isinstance(model, str):
        device_of(model)  # complains of anything else
    spec = lookup("data set", data, DATASETS) if isinstance(data, str) else None
    is_grafted = isinstance(model, nn.Module) and bool(grafted_activations(model))
    if line_lr is not None and not is_grafted:
        raise LingraftError("line_lr is the learning rate of grafted lines, and the model has none. Leave it out.")
    settings = {
        "epochs": epochs,
        "schedule": schedule,
        "milestones": milestones,
        "lr": lr,
        "batch": batch,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "optimizer": optimizer,
        "clip": clip,
        "initialization": initialization,
        "grad_align": grad_align,
        "attack_steps": attack_steps,
        "trades_beta": trades_beta,
        "warm_up": warm_up,
        "ramp": ramp,
        "kappa": kappa,
        "alpha": alpha,
        "regularization": regularization,
        "validation_images": validation_images,
        "seed": seed,
    }
    config = _configured(_radius(eps, data), method, preset, is_grafted, settings)
    with ExitStack() as inside:
        inside.enter_context(limited_threads(threads))
        where = device_for(model, device) if isinstance(model, nn.Module) else resolve_device(str(device or "auto"))
        where, follower = inside.enter_context(joined(where))
        network = _network(model, data, config)
        material, name = _material(data, validation, bool(spec and spec.augment) if augment is None else augment)
        from_run = None if parent is None else str(run_of(parent).path)
        description = _description(model, network, material, config, data=name, parent=from_run)
        # without a run it is the same, in a folder that is gone afterwards
        kept = run_of(follower or run or Path(inside.enter_context(TemporaryDirectory(prefix="lingraft-"))) / "run")
        inside.enter_context(holding(kept.path))
        options = {
            "data": data, "model": model, "eps": config.eps, "preset": preset, "method": method, **settings,
            "threads": threads, "device": None if device is None else str(device),
        }  # fmt: skip
        of_python = {"validation": validation, "loss": loss, "line_lr": line_lr, "augment": augment, "parent": parent}
        unwritten = {name: object() for name, value in of_python.items() if value is not None}
        destination = Destination(kept, description, restart, "train", {**options, **unwritten})
        if is_grafted:
            tuning = FineTuning(config) if line_lr is None else FineTuning(config, line_lr)
            grafting = GraftingConfig(config.eps, seed=seed)
            tuned, _ = tune_and_keep(
                network, material, grafting, tuning, destination,
                mask=masks(network), loss=loss, device=where, on_epoch=on_epoch,
            )  # fmt: skip
            return tuned
        work = train_network if run is None else train_and_keep
        work(network, material, config, destination, loss=loss, device=where, on_epoch=on_epoch)
    return network


def train_and_keep(
    model: nn.Module,
    data: TrainingData,
    config: TrainingConfig,
    destination: Destination,
    *,
    loss: Loss | ScheduledLoss | None = None,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> History:
    """Train `model` in place; its history is drawn, and the figures of the best epoch are kept with the run."""
    history = train_network(model, data, config, destination, loss=loss, device=device, on_epoch=on_epoch)
    if leads() and keep_training(destination.run, history, config):
        plot_history(destination.run, history, _title(model, destination.description, config.eps))
    return history


def _configured(eps: float, method: str, preset: str, is_grafted: bool, settings: dict[str, Any]) -> TrainingConfig:
    if not is_grafted:
        return with_preset(preset, eps, method, **settings)
    chosen = {name: value for name, value in settings.items() if value is not None}
    usual = {"epochs": lookup("preset", preset, TUNING_EPOCHS), "method": method}
    return fine_tuning_defaults(eps, **{**usual, **chosen})


def _radius(eps: float | None, data: Any) -> float:
    if isinstance(eps, str):
        raise LingraftError(f"eps must be a number, not text. Write {eps} without quotes.")
    if eps is not None:
        return eps
    if not isinstance(data, str):
        raise LingraftError("give eps, the radius to be robust in, in pixels of [0, 1]; 0: standard training.")
    return DATASETS[data].eps


def _network(model: nn.Module | str, data: Any, config: TrainingConfig) -> nn.Module:
    """A new network of the zoo, or a copy of the given module."""
    if isinstance(model, str):
        lookup("model", model, zoo.MODELS)
        if not isinstance(data, str):
            raise LingraftError("a network of the zoo is made for a data set. Give its name, or a module of your own.")
        spec = DATASETS[data]
        torch.manual_seed(config.seed)
        network: nn.Module = zoo.build(model, spec.input_shape, spec.classes, spec.mean, spec.std)
        draw(network, config.initialization or ("intervals" if config.certified and config.eps > 0 else "he"))
        return network
    network = copied(plain(model))
    if config.initialization is not None:
        torch.manual_seed(config.seed)
        draw(network, config.initialization)
    return network


def _material(data: Any, validation: Any, augment: bool) -> tuple[TrainingData, str]:
    """What to train and to validate on, and a name for it."""
    if isinstance(data, str):
        held_out = load_data(data, "validation") if validation is None else ImageSet.of(validation)
        return TrainingData(load_data(data, "train"), held_out, augment), data
    given = [ImageSet.of(part) for part in (data, validation) if part is not None]
    images, held_out = given if len(given) == 2 else _divided(given[0])
    return TrainingData(images, held_out, augment), name_of(given)


def _divided(data: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Images to train on and, the last ones, to choose the best epoch with."""
    last = max(1, round(HELD_OUT * len(data)))
    if len(data) <= last:
        raise LingraftError("one image is too few to train and to validate on. Give more, or validation images.")
    return data.take(slice(-last)), data.take(slice(-last, None))


def _description(
    model: nn.Module | str, network: nn.Module, material: TrainingData, config: TrainingConfig, **more: Any
) -> ModelDescription:
    more = {"eps": config.eps, "seed": config.seed, **more}
    if not isinstance(model, str):
        return describe_own(network, tuple(material.train.images.shape[1:]), **more)
    return described(model, **more)


def described(model: str, *, data: str, **more: Any) -> ModelDescription:
    """What `model.json` says of a network of the zoo that was made for a data set."""
    spec = DATASETS[data]
    return ModelDescription(
        architecture=model,
        input_shape=spec.input_shape,
        classes=spec.classes,
        mean=list(spec.mean),
        std=list(spec.std),
        data=data,
        **more,
    )


def _title(model: nn.Module, description: ModelDescription, eps: float) -> str:
    name = type(model).__name__ if description.architecture is None else zoo.MODELS[description.architecture].title
    data = DATASETS[description.data].title if description.data in DATASETS else "images of the user's own"
    return f"{name} on {data}, ε = {eps:.4g}"
