"""The steps of the work as functions on a model and data of your own.

    train → score → select → graft → train → evaluate → verify → write_report

Everything is computed on the device that the model is on. `data` is anything that `ImageSet.of` takes: tensors
(images, labels) with pixels in [0, 1], a DataLoader, a Dataset. A `run` is a folder in which the model and what is
measured of it are kept; the commands of lingraft work on it too.
"""

import copy
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft import grafting
from lingraft.attack import evaluation
from lingraft.data import ImageSet
from lingraft.device import device_of
from lingraft.errors import LingraftError
from lingraft.grafting.fine_tuning import describe_sites
from lingraft.runs import ModelDescription, Run
from lingraft.runs.lock import held
from lingraft.runs.own_images import OWN
from lingraft.training import TrainingConfig, preset_settings
from lingraft.training import train as train_plain
from lingraft.work.keeping import require_same_weights

#: Share of the training images, the last ones, that decide which epoch is the best where no others are given.
HELD_OUT = 0.1

#: Where to keep a model and what is measured of it.
Folder = str | Path | Run


def train(
    model: nn.Module,
    data: Any,
    validation: Any = None,
    *,
    eps: float,
    run: Folder,
    epochs: int = 15,
    lr: float | None = None,
    line_lr: float | None = None,
    batch: int = 128,
    method: str = "fat",
    augment: bool = False,
    parent: Folder | None = None,
    seed: int = 0,
    restart: bool = False,
) -> nn.Module:
    """A robustly trained copy of `model` in eval mode, kept in `run`; `model` itself is not changed.

    A plain model is trained with one cycle of the learning rate, up to `lr` (default: 0.1; certified methods: 0.002).
    A grafted model is fine-tuned as in the paper, down from `lr` (default: 0.001) for the weights and from `line_lr`
    (default: 0.01) for slopes and intercepts. `method` is fast adversarial training ("fat") or any other that `lingraft
    train` knows; with `eps` = 0 nothing is attacked. The epoch with the best robust accuracy on `validation` is kept;
    without it, the last tenth of `data` is put aside for that. `augment` crops and flips the images. `parent` is the
    run that a grafted model comes from.

    Called again with the same arguments it goes on after a stop, and leaves a finished run as it is; with other
    arguments or data it refuses, unless `restart` throws away what is there.
    """
    run = _run(run)
    given = [ImageSet.of(part) for part in (data, validation) if part is not None]
    name = _name(given)
    images, held_out = given if len(given) == 2 else _divided(given[0])
    device, is_grafted = device_of(model), bool(grafting.grafted_activations(model))
    if line_lr is not None and not is_grafted:
        raise LingraftError("line_lr is the learning rate of grafted lines, and the model has none. Leave it out.")
    description = _describe(model, tuple(images.images.shape[1:]), eps, parent, name, seed)
    settings: dict[str, Any] = {"epochs": epochs, "batch": batch, "method": method, "seed": seed}
    common: dict[str, Any] = {"augment": augment, "device": device, "restart": restart}
    with held(run.path):
        if is_grafted:
            tuned = grafting.fine_tuning_defaults(eps, **settings, **({} if lr is None else {"lr": lr}))
            tuning = grafting.FineTuning(tuned) if line_lr is None else grafting.FineTuning(tuned, line_lr)
            config = grafting.GraftingConfig(eps, seed=seed)
            trained: nn.Module
            trained, history = grafting.graft_and_tune(
                model, images, held_out, config, tuning, run, description, mask=grafting.masks(model), **common
            )
        else:
            usual = {**preset_settings("laptop", method), **({} if lr is None else {"lr": lr})}
            tuned = TrainingConfig(eps, **{**usual, **settings})
            trained = copy.deepcopy(model)
            history = train_plain(trained, images, held_out, tuned, run, description, **common)
        assert history is not None
        figures = {"best": history.best.as_dict(), "epochs": epochs, "settings": tuned.as_dict()}
        run.add_to_summary("training", figures)
    return trained


def score(
    model: nn.Module,
    data: Any,
    *,
    eps: float,
    significance: str | grafting.Significance = "gap",
    bounds: str = "crown",
    images: int = 1000,
    bound_images: int = 100,
    seed: int = 0,
) -> grafting.Scores:
    """How much every neuron matters, and for how many images it is unstable within `eps` (the paper, Section 4).

    `data` should be training images; the first `images` of them are used for the significance, the first
    `bound_images` for the instability. `significance` is gap, adversarial-gap, sap, hydra, random, or an object with a
    method `score(model, data)` of your own; `bounds` are intervals, crown or alpha-crown.
    """
    name, own = (significance, None) if isinstance(significance, str) else ("gap", significance)
    config = grafting.GraftingConfig(
        eps, significance=name, bounds=bounds, images=images, bound_images=bound_images, seed=seed
    )
    return grafting.score(model, ImageSet.of(data, max(images, bound_images)), config, own)


def select(
    scores: grafting.Scores,
    ratio: float = 0.5,
    *,
    gammas: Sequence[float] = grafting.GAMMAS,
    ranks: str = "network",
) -> dict[str, Tensor]:
    """The mask of that share of all neurons with the highest γ·r_u − r_s, for `lingraft.graft` (the paper, Section 4).

    Site name → boolean tensor of the neuron shape. With several γ an equal share is chosen with each in turn.
    With ranks "site" the share is one of the neurons of each site, ranked among themselves.
    """
    return grafting.select_ranked(scores, ratio, gammas, ranks)


def evaluate(
    model: nn.Module,
    data: Any,
    *,
    eps: float,
    attack: str = "pgd",
    steps: int = 20,
    restarts: int = 5,
    step_size: float | None = None,
    images: int | None = None,
    batch: int = 256,
    seed: int = 0,
    run: Folder | None = None,
) -> evaluation.Evaluation:
    """Standard accuracy `.sa` on `data`, robust accuracy `.ra` of its first `images` (default: all) against an attack.

    `attack` is pgd, fgsm or one that was registered with `lingraft.attack.register`. With `run`, a folder that holds
    this model, the figures are kept there.
    """
    plan = evaluation.Attack(eps, attack, steps, restarts, step_size, seed)
    pixels = ImageSet.of(data)
    if run is None:
        return evaluation.evaluate(model, pixels, plan, images=images, batch=batch, device=device_of(model))
    run = _run(run)
    with held(run.path):
        require_same_weights(run, model)
        result = evaluation.evaluate(model, pixels, plan, images=images, batch=batch, device=device_of(model))
        name = run.describe().data or OWN
        figures = {"data": name, **result.as_dict()}
        run.add_to_summary("evaluation", figures, f"{name} {result.name}")
    return result


def save(
    model: nn.Module,
    run: Folder,
    input_shape: Sequence[int],
    *,
    eps: float | None = None,
    parent: Folder | None = None,
) -> Run:
    """Keep a model of your own in a new run folder; `lingraft.load(run, model=YourModel())` gives it back.

    `input_shape` is that of one image, `eps` the radius to use where none is said, `parent` the run of the model that
    this one was grafted from.
    """
    run = _run(run)
    description = _describe(model, tuple(input_shape), eps, parent, None, None)
    with held(run.path):
        if run.weights_path.exists():
            raise LingraftError(f"{run.path} holds a model already. Choose another folder.")
        run.save_weights(model)
        run.write_description(description)
    return run


def _run(folder: Folder) -> Run:
    return folder if isinstance(folder, Run) else Run(folder)


def _name(given: Sequence[ImageSet]) -> str:
    """A name for data that has none. It changes with every pixel and label, so that no run goes on with other data."""
    digest = hashlib.sha256()
    for data in given:
        digest.update(repr(tuple(data.images.shape)).encode())
        for tensor in (data.images, data.labels):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return f"{OWN}-{digest.hexdigest()[:8]}"


def _divided(data: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Images to train on and, the last ones, to choose the best epoch with."""
    last = max(1, round(HELD_OUT * len(data)))
    if len(data) <= last:
        raise LingraftError("one image is too few to train and to validate on. Give more, or validation images.")
    return data.take(slice(-last)), data.take(slice(-last, None))


def _describe(
    model: nn.Module,
    input_shape: tuple[int, ...],
    eps: float | None,
    parent: Folder | None,
    data: str | None,
    seed: int | None,
) -> ModelDescription:
    """What `model.json` says of a model of the user's own; its sites show that torch.fx can trace it."""
    if isinstance(eps, str):
        raise LingraftError(f"eps must be a number, not text. Write {eps} without quotes.")
    grafting.sites(model, input_shape)
    with torch.no_grad(), evaluation.evaluating(model):
        outputs = model(torch.zeros(1, *input_shape, device=device_of(model)))
    if not isinstance(outputs, Tensor) or outputs.ndim != 2:
        given = f"tensor of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise LingraftError(f"the model must give logits (N, classes), not a {given}.")
    return ModelDescription(
        architecture=None,
        input_shape=input_shape,
        classes=outputs.shape[1],
        data=data,
        eps=eps,
        seed=seed,
        parent=None if parent is None else str(_run(parent).path),
        grafted=describe_sites(model) or None,
    )
