"""Training a network of the zoo or one of the user's own, in a run folder."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.ball import GIVEN, Clip, Eps, Radius, largest, radius
from lingraft.data import ImageSet, is_known, spec_of
from lingraft.data import load as load_data
from lingraft.device import device_of, limited_threads, require_precision, resolve_device
from lingraft.errors import LingraftError
from lingraft.grafting import FineTuning, GraftingConfig, fine_tuning_defaults
from lingraft.grafting.config import grafting_preset
from lingraft.grafting.mask_file import load_mask
from lingraft.model import zoo
from lingraft.model.plain import copied, plain
from lingraft.model.sites import grafted_activations
from lingraft.model.surgery import masks
from lingraft.names import lookup
from lingraft.report.run_figures import plot_history
from lingraft.runs import ModelDescription
from lingraft.runs.holding import holding
from lingraft.runs.origin import is_network, network_from
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
from lingraft.work.given import (
    Device,
    Folder,
    describe_own,
    device_for,
    digest_data,
    keep_onnx,
    name_of,
    named,
    origin_in,
    require_tests,
    run_of,
)
from lingraft.work.tune import keep_training, tune_and_keep

#: Share of the training images, the last ones, that decide which epoch is the best where no others are given.
HELD_OUT = 0.1


def train(
    model: nn.Module | str,
    data: Any,
    validation: Any = None,
    *,
    test_data: str | Path | None = None,
    eps: Eps | None = None,
    clip: Clip = GIVEN,
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
    gradient_clip: float | None = None,
    initialization: str | None = None,
    grad_align: float = 0.2,
    grad_align_share: float | None = None,
    attack_steps: int | None = None,
    trades_beta: float = 6.0,
    eps_factor: float = 1.0,
    warm_up: int | None = None,
    ramp: int | None = None,
    kappa: tuple[float, float] = (0.0, 0.0),
    alpha: float = 0.01,
    small_box: float = 0.1,
    attacked_sites: int = 1,
    regularization: float = 0.5,
    validation_images: int | None = None,
    mask: str | Path | Mapping[str, Tensor] | None = None,
    augment: bool | None = None,
    parent: Folder | None = None,
    seed: int = 0,
    device: Device = None,
    threads: int | None = None,
    restart: bool = False,
    on_epoch: OnEpoch | Sequence[OnEpoch] = print_epoch,
) -> nn.Module:
    """A robustly trained copy of `model` in eval mode, kept in `run` if there is one; `model` itself is not changed.

    `model` may be the name of a network of the zoo, an ONNX file, or code that makes a network, "net.py:make_net".
    `data` may be the name of a data set, which has validation images, a default of `eps` (the paper's) and of `augment`
    (random crops and flips) of its own, or a file of images, "mine.npz" (see `lingraft.data.npz`); the run remembers
    it, and `test_data`, a data set or file with the test images if `data` has none. The options are those of `lingraft
    train`; what is None is as the `preset` has it for the `method`: fast adversarial training ("fat") or any other of
    `lingraft.training.METHODS`. A `loss` of your own takes its place, see `lingraft.training.Loss`. With `eps` = 0
    nothing is attacked. A module is trained from the weights it has, unless `initialization` draws new ones.

    A plain model is trained with one cycle of the learning rate, up to `lr` (default: 0.1; certified methods: 0.002).
    A grafted model is fine-tuned as by `graft_and_tune`, down from `lr` for the weights and from `line_lr` for slopes
    and intercepts; `parent` is the run that it comes from.

    The neurons of a `mask`, or of the file of one, are lines from the beginning, and are trained with the rest, at
    `line_lr` (default: 0.05, the paper's 0.01; with Adam, `lr`).

    The epoch with the best robust accuracy on `validation` is kept; without it, the last tenth of `data` is put aside
    for that. `eps` is a number, a text such as "2/255", or a tensor with a radius for each feature, in the shape of one
    sample; `clip` is the range of values (default: that of the data, else [0, 1]; None: no limits), which attacks stay
    in; the run keeps both. Samples may have any shape: images, rows of a table, sequences.

    `on_epoch`, a function of the history or a list of such, is called after each epoch, and ends training by returning
    True (default: a line is printed; see `lingraft.training.callbacks`). Called again with the same arguments it goes
    on after a stop, and leaves a finished run as it is; with other arguments or data it refuses, unless `restart`
    throws away what is there.
    """
    if not isinstance(model, str):
        device_of(model)  # complains of anything else
        require_precision(model)
    data = data if named(data) is None else named(data)
    spec = spec_of(data) if isinstance(data, str) else None
    is_grafted = isinstance(model, nn.Module) and bool(grafted_activations(model))
    if line_lr is not None and not is_grafted and mask is None:
        raise LingraftError("line_lr is the learning rate of grafted lines, and the model has none. Leave it out.")
    if mask is not None and is_grafted:
        raise LingraftError(
            "the model has lines already, which are trained. Leave out the mask, or give a plain model."
        )
    lines = load_mask(Path(mask)) if isinstance(mask, str | Path) else mask
    settings = {
        "epochs": epochs,
        "schedule": schedule,
        "milestones": milestones,
        "lr": lr,
        "batch": batch,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "optimizer": optimizer,
        "gradient_clip": gradient_clip,
        "initialization": initialization,
        "grad_align": grad_align,
        "grad_align_share": grad_align_share,
        "attack_steps": attack_steps,
        "trades_beta": trades_beta,
        "eps_factor": eps_factor,
        "warm_up": warm_up,
        "ramp": ramp,
        "kappa": kappa,
        "alpha": alpha,
        "small_box": small_box,
        "attacked_sites": attacked_sites,
        "regularization": regularization,
        "validation_images": validation_images,
        "seed": seed,
    }
    config = _configured(_radius(eps, data), method, preset, is_grafted, settings)
    with ExitStack() as inside:
        inside.enter_context(limited_threads(threads))
        where = device_for(model, device) if isinstance(model, nn.Module) else resolve_device(str(device or "auto"))
        where, follower = inside.enter_context(joined(where))
        augmented = bool(spec and spec.augment) if augment is None else augment
        material, name = material_of(data, validation, augmented, clip)
        config = replace(config, clip=material.train.clip)
        material.require_ball(config)
        network = _network(model, data, config)
        before = None if parent is None else run_of(parent)
        description = _description(
            model, network, material, config,
            data=name, data_sha256=digest_data(name), test_data=named(test_data),
            parent=None if before is None else str(before.path), origin=origin_in(model, before),
        )  # fmt: skip
        if description.test_data is not None:
            require_tests(description, description.test_data)
        # without a run it is the same, in a folder that is gone afterwards
        kept = run_of(follower or run or Path(inside.enter_context(TemporaryDirectory(prefix="lingraft-"))) / "run")
        inside.enter_context(holding(kept.path))
        keep_onnx(kept, model, before)
        options = {
            "data": data, "test_data": test_data, "model": model, "eps": config.eps,
            "clip": "none" if clip is None else clip, "preset": preset, "method": method, **settings,
            "mask": mask, "threads": threads, "device": None if device is None else str(device),
        }  # fmt: skip
        of_python = {"validation": validation, "loss": loss, "line_lr": line_lr, "augment": augment, "parent": parent}
        unwritten = {name: object() for name, value in of_python.items() if value is not None}
        destination = Destination(kept, description, restart, "train", {**options, **unwritten})
        if is_grafted or lines is not None:
            usual = config.lr if config.optimizer == "adam" else grafting_preset(preset, "sgd")["line_lr"]
            tuning = FineTuning(config, usual if line_lr is None else line_lr, from_scratch=lines is not None)
            grafting = GraftingConfig(config.eps, seed=seed)
            tuned, _ = tune_and_keep(
                network, material, grafting, tuning, destination,
                mask=masks(network) if lines is None else lines, loss=loss, device=where, on_epoch=on_epoch,
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


def _configured(eps: Radius, method: str, preset: str, is_grafted: bool, settings: dict[str, Any]) -> TrainingConfig:
    if not is_grafted:
        return with_preset(preset, eps, method, **settings)
    chosen = {name: value for name, value in settings.items() if value is not None}
    usual = grafting_preset(preset, optimizer=chosen.get("optimizer", "sgd"))
    return fine_tuning_defaults(eps, **{"epochs": usual["epochs"], "lr": usual["lr"], "method": method, **chosen})


def _radius(eps: Eps | None, data: Any) -> Radius:
    if eps is not None:
        return radius(eps, alike=True)
    if not isinstance(data, str):
        raise LingraftError("give eps, the radius to be robust in, in the values of the data; 0: standard training.")
    usual = spec_of(data).eps
    if usual is None:
        raise LingraftError(f"{data} says no radius. Give --eps, the radius to be robust in; 0: standard training.")
    return usual


def _network(model: nn.Module | str, data: Any, config: TrainingConfig) -> nn.Module:
    """A new network of the zoo, one that a file or code gives, or a copy of the given module."""
    if isinstance(model, str) and is_network(model):
        torch.manual_seed(config.seed)
        model = network_from(model)
        assert isinstance(model, nn.Module)
    elif isinstance(model, str):
        lookup("model", model, zoo.MODELS)
        if not isinstance(data, str):
            raise LingraftError("a network of the zoo is made for a data set. Give its name, or a module of your own.")
        spec = spec_of(data)
        torch.manual_seed(config.seed)
        network: nn.Module = zoo.build(model, spec.input_shape, spec.classes, spec.mean, spec.std)
        draw(network, config.initialization or ("intervals" if config.certified and largest(config.eps) > 0 else "he"))
        return network
    network = copied(plain(model))
    if config.initialization is not None:
        torch.manual_seed(config.seed)
        draw(network, config.initialization)
    return network


def material_of(data: Any, validation: Any, augment: bool, clip: Clip) -> tuple[TrainingData, str]:
    """What to train and to validate on, and a name for it."""
    if isinstance(data, str):
        held_out = load_data(data, "validation", clip=clip) if validation is None else validation
        train = load_data(data, "train", clip=clip)
        return TrainingData(train, ImageSet.of(held_out, clip=clip), augment), data
    train = ImageSet.of(data, clip=clip)
    given = [train] if validation is None else [train, ImageSet.of(validation, clip=train.clip)]
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
    more = {"eps": config.eps, "clip": config.clip, "seed": config.seed, **more}
    if not isinstance(model, str) or is_network(model):
        return describe_own(network, tuple(material.train.images.shape[1:]), **more)
    return described(model, **{**more, "origin": None})


def described(model: str, *, data: str, **more: Any) -> ModelDescription:
    """What `model.json` says of a network of the zoo that was made for a data set."""
    spec = spec_of(data)
    return ModelDescription(
        architecture=model,
        input_shape=spec.input_shape,
        classes=spec.classes,
        mean=list(spec.mean),
        std=list(spec.std),
        data=data,
        **more,
    )


def _title(model: nn.Module, description: ModelDescription, eps: Radius) -> str:
    name = type(model).__name__ if description.architecture is None else zoo.MODELS[description.architecture].title
    known = description.data is not None and is_known(description.data)
    data = spec_of(str(description.data)).title if known else "images of the user's own"
    return f"{name} on {data}, ε = {eps:.4g}"
