"""What the functions of `work/` are given: a model or a run folder, data or the name of a data set."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.attack.evaluation import evaluating
from lingraft.data import ImageSet
from lingraft.data import load as load_data
from lingraft.data.places import MissingFile
from lingraft.device import device_of, resolve_device
from lingraft.errors import LingraftError
from lingraft.grafting.fine_tuning import describe_sites
from lingraft.model.plain import plain
from lingraft.model.sites import sites
from lingraft.runs import ModelDescription, Run, load
from lingraft.runs.own_images import OWN, kept_images

#: Where a model and what is measured of it are kept.
Folder = str | Path | Run

#: Where to compute: a name for `resolve_device`; None: where the model is, of a run folder `auto`.
Device = str | torch.device | None


def run_of(folder: Folder) -> Run:
    """The run of a folder."""
    if not isinstance(folder, str | Path | Run):
        raise LingraftError(
            f"{folder!r} is neither a model nor a run folder. A model is an nn.Module,"
            " made by calling its class, e.g. Net()."
        )
    return folder if isinstance(folder, Run) else Run(folder)


def kept_run(model: nn.Module | Folder, run: Folder | None) -> Run | None:
    """The run to keep figures in: the one that the model is given by, or the one that is named beside it."""
    if isinstance(model, nn.Module):
        kept = None if run is None else run_of(run)
    elif run is None:
        kept = run_of(model)
    else:
        raise LingraftError("the model is a run folder, where figures are kept anyway. Leave out run.")
    if kept is not None:
        kept.describe()  # complains of a folder that is no run
    return kept


def network_of(model: nn.Module | Folder, device: Device) -> nn.Module:
    """The model, or that of a run folder, on the device."""
    if isinstance(model, str | Path | Run):
        return load(model, device=_resolved(device or "auto"))
    model = plain(model)
    return model if device is None else model.to(_resolved(device))


def device_for(model: nn.Module, device: Device) -> torch.device:
    """Where to compute with a model."""
    return device_of(model) if device is None else _resolved(device)


def _resolved(device: str | torch.device) -> torch.device:
    return resolve_device(str(device))


def radius_of(eps: float | None, run: Run | None) -> float:
    """The given ε, else that of the run."""
    if isinstance(eps, str):
        raise LingraftError(f"eps must be a number, not text. Write {eps} without quotes.")
    if run is not None:
        return run.describe().radius(eps)
    if eps is None:
        raise LingraftError("give eps, the radius of the ball in pixels of [0, 1], e.g. eps=2 / 255.")
    return eps


def images_of(data: Any, split: str, run: Run | None, most: int | None = None) -> tuple[str | None, ImageSet]:
    """The images, of a data set those of this split, and its name; without data, of the data set of the run.

    Of anything else than a data set at most `most` images are read.
    """
    if data is None and run is None:
        raise LingraftError("give data: images and labels, a DataLoader, a Dataset or the name of a data set.")
    name = run.describe().data_set(data) if data is None and run is not None else data
    images = _load(name, split, run) if isinstance(name, str) else ImageSet.of(data, most)
    if run is not None:
        run.describe().check_fits(images, "training" if split == "train" else split)
    return name if isinstance(name, str) else None, images


def _load(name: str, split: str, run: Run | None) -> ImageSet:
    """Images of a data set; without its files, the test images that the run brings along."""
    try:
        return load_data(name, split)
    except MissingFile:
        brought = kept_images(run, name) if run is not None and split == "test" else None
        if brought is None:
            raise
        return brought


def name_of(given: Sequence[ImageSet]) -> str:
    """A name for data that has none. It changes with every pixel and label, so that no run goes on with other data."""
    digest = hashlib.sha256()
    for data in given:
        digest.update(repr(tuple(data.images.shape)).encode())
        for tensor in (data.images, data.labels):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return f"{OWN}-{digest.hexdigest()[:8]}"


def describe_own(model: nn.Module, input_shape: tuple[int, ...], **more: Any) -> ModelDescription:
    """What `model.json` says of a model of the user's own; its sites show that torch.fx can trace it."""
    if isinstance(more.get("eps"), str):
        raise LingraftError(f"eps must be a number, not text. Write {more['eps']} without quotes.")
    sites(model, input_shape)
    with torch.no_grad(), evaluating(model):
        outputs = model(torch.zeros(1, *input_shape, device=device_of(model)))
    if isinstance(outputs, Tensor) and outputs.ndim in (1, 2) and outputs[0].numel() == 1:
        raise LingraftError(
            "the model gives a single logit. Give lingraft.logits(model, input_shape), which has two, (0, z): class 1"
            " is where z > 0."
        )
    if not isinstance(outputs, Tensor) or outputs.ndim != 2:
        given = f"tensor of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise LingraftError(f"the model must give logits (N, classes), not a {given}.")
    grafted = describe_sites(model) or None
    return ModelDescription(
        architecture=None, input_shape=input_shape, classes=outputs.shape[1], grafted=grafted, **more
    )
