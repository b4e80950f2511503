"""The training loop: killed at any moment, it goes on from the last epoch and ends with the same weights."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from lingraft.attack.evaluation import Attack, correct, robust
from lingraft.ball import Ball, shown
from lingraft.data import Batches, ImageSet
from lingraft.errors import LingraftError
from lingraft.files import append_line, line_of, read_lines, replacing
from lingraft.memory import kept_memory
from lingraft.progress import Advance, console, progress
from lingraft.randomness import derive_generator, derive_seed
from lingraft.runs import ModelDescription, Run, load_tensors, load_weights
from lingraft.settings_file import write_settings
from lingraft.training import distributed
from lingraft.training.callbacks import OnEpoch, as_callbacks, print_epoch
from lingraft.training.checkpoint import Checkpoint, check_same_settings, refuse_foreign
from lingraft.training.config import METHODS, TrainingConfig, in_todays_words
from lingraft.training.differentiable.certify import certified_by_intervals
from lingraft.training.history import Epoch, History, has_collapsed
from lingraft.training.loss import Loss, ScheduledLoss, loss_at
from lingraft.training.optimizer import make_optimizer
from lingraft.training.step import take_step


@dataclass(frozen=True)
class TrainingData:
    """What a network is trained on, and what decides which epoch is the best; `augment` crops and flips the first."""

    train: ImageSet
    validation: ImageSet
    augment: bool = False

    def require_ball(self, config: TrainingConfig) -> None:
        """Refuse a radius or a range of values that is not one of these images."""
        for data in (self.train, self.validation):
            if data.clip != config.clip:
                raise LingraftError(
                    f"the images have the range of values {shown(data.clip)}, but training is told"
                    f" {shown(config.clip)}. Give both the same clip."
                )
            Ball.around(config.eps, data.images.shape, data.clip)


@dataclass(frozen=True)
class Destination:
    """Where a trained network is kept, and what is said of it there; `restart` throws away what the run holds."""

    run: Run
    description: ModelDescription
    restart: bool = False
    #: the command that does the same, and its options, for settings.yaml
    command: str = "train"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """How to train: the settings, and what is made of them for a certain model."""

    config: TrainingConfig
    loss: Loss | ScheduledLoss
    #: parameter groups as for torch's optimizers: {"params": …, "lr": …, "weight_decay": …}, of the model's parameters
    groups: Sequence[Mapping[str, Any]]
    #: what the user chose, JSON-able; training goes on from a checkpoint only if it is the same there
    settings: Mapping[str, Any]
    #: called with the epoch, counted from 0, before it begins; may change the model in place, depending on nothing
    #: but the epoch and the state dict of the model
    before_epoch: Callable[[int], None] | None = None
    #: the first epoch, counted from 0, whose weights may be kept as the best
    keep_from: int = 0
    #: whether to measure what intervals certify of the validation images that are attacked
    certify: bool = False

    def history(self, epochs: Sequence[Epoch], resumed: int = 0) -> History:
        """These epochs, and which of them is the best."""
        return History(epochs, resumed, self.keep_from, METHODS[self.config.method].keep_certified)


def fit(
    model: nn.Module,
    data: TrainingData,
    plan: Plan,
    destination: Destination,
    *,
    device: torch.device | str = "cpu",
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> History:
    """Train `model` in place; at the end it has the weights of the best epoch and is in eval mode.

    After each epoch: standard accuracy and PGD accuracy on the validation images, a line in history.jsonl, the
    checkpoint, and in model.safetensors the weights of the best epoch so far (see `History.best`). Called again on the
    same run it goes on after the last whole epoch; on the CPU, with the same number of threads, the result is equal to
    the bit. A finished run is left as it is. `on_epoch` is called after each epoch; where it returns True, training
    ends, and the run is finished.
    """
    callbacks = as_callbacks(on_epoch)
    device, run, description, config = torch.device(device), destination.run, destination.description, plan.config
    description.check_fits(data.train, "training")
    description.check_fits(data.validation, "validation")
    data.require_ball(config)
    model.to(device)
    optimizer = make_optimizer(config.optimizer, plan.groups, config.momentum, device)
    settings = {
        "model": description.architecture,
        "data": description.data_sha256 or description.data,  # of a file the content: its name may change
        "training_images": len(data.train),
        **plan.settings,
    }
    if distributed.leads():
        epochs, stopped = _begin(model, optimizer, settings, plan, destination)
    distributed.mirror(run, device)
    if not distributed.leads():
        epochs, stopped = _begin(model, optimizer, settings, plan, replace(destination, restart=False))
    resumed = len(epochs)
    last = resumed if stopped else config.epochs
    batches_an_epoch = math.ceil(len(data.train) / config.batch)
    devices = [device] if device.type == "cuda" else []
    with (
        kept_memory(),
        torch.random.fork_rng(devices),
        progress("training", (last - resumed) * batches_an_epoch) as advance,
    ):
        one = _OneEpoch(model, data, plan, optimizer, device, advance)
        for number in range(resumed, last):
            started = time.perf_counter()
            torch.manual_seed(derive_seed(config.seed, "model", number))  # for dropout and the like
            if plan.before_epoch is not None:
                plan.before_epoch(number)
            distributed.align(model)
            loss, figures = one.train(number, epochs)
            sa, ra, certified = _validate(model, data.validation, plan, device)
            epoch = Epoch(
                epoch=number + 1,
                loss=loss,
                sa=sa,
                ra=ra,
                lr=optimizer.param_groups[0]["lr"],
                seconds=round(time.perf_counter() - started, 3),
                overfitting=has_collapsed(ra, loss, epochs),
                certified=certified,
                figures=figures,
            )
            epochs.append(epoch)
            Checkpoint.of(model, optimizer, settings, epochs).save(run)
            _save_if_best(model, run, epochs, plan)
            append_line(run.history_path, epoch.as_dict())
            stops = _wants_to_stop(callbacks, plan.history(tuple(epochs), resumed), device)
            if epoch.overfitting:
                _warn_of_overfitting(epochs, plan)
            if stops:
                Checkpoint.of(model, optimizer, settings, epochs, stopped=True).save(run)
                break
    tensors, _ = load_tensors(run.weights_path)
    load_weights(model, tensors, run.weights_path)
    model.eval()
    return plan.history(epochs, resumed)


def _begin(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: Mapping[str, Any],
    plan: Plan,
    destination: Destination,
) -> tuple[list[Epoch], bool]:
    """Bring model, optimizer and run folder to the last whole epoch; gives the epochs done, and whether it is over."""
    run = destination.run
    run.remove_parts()
    if destination.restart:
        run.remove_results()
    if run.checkpoint_path.exists():
        checkpoint = Checkpoint.load(run)
        check_same_settings(run, in_todays_words(checkpoint.settings), settings)
        checkpoint.restore(model, optimizer, run)
    else:
        refuse_foreign(run)
        # The start is a checkpoint too: a kill in the first epoch loses neither settings nor initial weights.
        checkpoint = Checkpoint.of(model, optimizer, settings, [])
        checkpoint.save(run)
    epochs = list(checkpoint.epochs)
    if not epochs or not run.is_described():
        run.write_description(destination.description)
    if destination.options and not (epochs and run.settings_path.exists()):
        write_settings(run.settings_path, destination.command, destination.options)
    if not epochs:
        return epochs, False
    # Killed right after a checkpoint, the weights of that epoch may not have been written as the best yet.
    best = plan.history(epochs).best.epoch
    if _kept_epoch(run) != best:
        _save_if_best(model, run, epochs, plan)
        if best != len(epochs):
            raise LingraftError(
                f"{run.weights_path} is missing or damaged. It held the weights of epoch {best}, and the checkpoint has"
                f" only those of epoch {len(epochs)}. Restore it, or start over (--restart)."
            )
    records = [epoch.as_dict() for epoch in epochs]
    if read_lines(run.history_path) != records:
        with replacing(run.history_path) as part:
            part.write_bytes(b"".join(map(line_of, records)))
    return epochs, checkpoint.stopped


def _wants_to_stop(callbacks: Sequence[OnEpoch], history: History, device: torch.device) -> bool:
    """Call them all, in the leading process; whether one of them ends training."""
    answers = [callback(history) for callback in callbacks] if distributed.leads() else []
    (stops,) = distributed.from_leader([float(any(answer is True for answer in answers))], 1, device)
    return bool(stops)


def _kept_epoch(run: Run) -> int | None:
    """The epoch whose weights are in model.safetensors; None if that is missing or damaged."""
    try:
        return load_tensors(run.weights_path)[1].get("epoch")
    except LingraftError:
        return None


def _save_if_best(model: nn.Module, run: Run, epochs: Sequence[Epoch], plan: Plan) -> None:
    best = plan.history(epochs).best
    if best is epochs[-1]:
        run.save_weights(model, {"epoch": best.epoch, "sa": best.sa, "ra": best.ra})


class _OneEpoch:
    """Passes over the training images; `learning_rates` are those of the groups before the schedule's factor."""

    def __init__(
        self,
        model: nn.Module,
        data: TrainingData,
        plan: Plan,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        advance: Advance,
    ):
        self.model, self.data, self.plan, self.optimizer = model, data, plan, optimizer
        self.device, self.advance = device, advance
        self.schedule = plan.config.learning_rate()
        self.learning_rates = [group["lr"] for group in plan.groups]

    def train(self, number: int, earlier: Sequence[Epoch]) -> tuple[float, dict[str, float]]:
        """One pass, counted from 0; gives the mean loss and the mean figures of the loss."""
        plan, config, model = self.plan, self.plan.config, self.model
        order = derive_generator("cpu", config.seed, "order", number)
        noise = derive_generator(self.device, config.seed, "noise", number)
        batches = Batches(
            self.data.train,
            config.batch,
            shuffle=True,
            augment=self.data.augment,
            generator=order,
            device=self.device,
        )
        validated = f"  SA {earlier[-1].sa:.1%}  RA {earlier[-1].ra:.1%}" if earlier else ""
        sums: dict[str, float] = {}
        loss_sum, seen = 0.0, 0
        model.train()
        for step, (images, labels) in enumerate(batches):
            moment = number + (step + 0.5) / len(batches)
            factor = self.schedule(moment)
            for group, learning_rate in zip(self.optimizer.param_groups, self.learning_rates, strict=True):
                group["lr"] = learning_rate * factor
            loss = loss_at(plan.loss, moment)
            value, figures = take_step(model, self.optimizer, loss, images, labels, noise, config.gradient_clip)
            if not math.isfinite(value):
                raise _diverged(f"the loss is {value} in epoch {number + 1}, step {step + 1}", number)
            count = len(images)
            seen += count
            loss_sum += value * count
            for name, figure in figures.items():
                sums[name] = sums.get(name, 0.0) + figure.item() * count
            self.advance(note=f"epoch {number + 1}/{config.epochs}  loss {loss_sum / seen:.3f}{validated}")
        if not all(torch.isfinite(parameter).all() for parameter in model.parameters()):
            raise _diverged(f"weights are NaN or infinite after epoch {number + 1}", number)
        return loss_sum / seen, {name: value / seen for name, value in sums.items()}


def _diverged(what: str, done: int) -> LingraftError:
    return LingraftError(
        f"training diverged: {what}. The checkpoint of epoch {done} is kept."
        " Try a lower learning rate (--lr) in another folder (-o)."
    )


def _validate(
    model: nn.Module, validation: ImageSet, plan: Plan, device: torch.device
) -> tuple[float, float, float | None]:
    """Standard accuracy on all validation images, PGD accuracy and what is certified on those that the plan names."""
    figures = _figures(model, validation, plan, device) if distributed.leads() else None
    sa, ra, certified = distributed.from_leader(figures, 3, device)
    assert sa is not None
    assert ra is not None
    return sa, ra, certified


def _figures(
    model: nn.Module, validation: ImageSet, plan: Plan, device: torch.device
) -> tuple[float, float, float | None]:
    right, config = correct(model, validation, device=device), plan.config
    attacked = validation.take(min(config.validation_images or len(validation), len(validation)))
    attack = Attack(config.eps, steps=config.validation_steps, restarts=1, seed=config.seed)
    unbroken = robust(model, attacked, right[: len(attacked)], attack, device=device)
    certified = None
    if plan.certify:
        certified = certified_by_intervals(model, attacked, config.eps, device=device).double().mean().item()
    return right.double().mean().item(), unbroken.double().mean().item(), certified


def _warn_of_overfitting(epochs: Sequence[Epoch], plan: Plan) -> None:
    best = plan.history(epochs).best
    console.print(
        f"[yellow]warning:[/] this looks like catastrophic overfitting: the robust accuracy fell to {epochs[-1].ra:.1%}"
        f" (best: {best.ra:.1%} in epoch {best.epoch}, which is kept) while the training loss did not grow."
        " A larger --grad-align or a smaller --lr helps.",
        highlight=False,
        soft_wrap=True,
    )
