"""Images of the user's own that a run has verdicts about, kept there for the report and for later calls."""

from pathlib import Path

import torch
from torch import Tensor

from lingraft.data import DATASETS, ImageSet, load
from lingraft.errors import LingraftError
from lingraft.runs.run import Run
from lingraft.runs.tensors import load_tensors, save_tensors
from lingraft.runs.verdicts import digest_image
from lingraft.solver.request import Request

#: Name of images that the run does not name.
OWN = "own"


def place_of(run: Run, request: Request) -> tuple[str, int]:
    """What the images are called in this run, and the number of the first of them; images of the user's own are kept.

    Images that are not the first ones of the run's data set are the user's own. Where they go on from those that are
    there already, or are among them, they keep their numbers; else they come behind them.
    """
    name = run.describe().data or OWN
    if name in DATASETS:
        if _begins_with(name, request.images):
            return name, 0
        name = OWN
    kept = kept_images(run, name)
    old, new = ([] if kept is None else _digests(kept.images)), _digests(request.images)
    first = next(o for o in range(len(old) + 1) if _agree(old[o:], new))
    if first + len(new) > len(old):
        images, labels = request.images.float(), torch.tensor(request.labels)
        if kept is not None:
            images, labels = torch.cat([kept.images[:first], images]), torch.cat([kept.labels[:first], labels])
        save_tensors(_images_path(run, name), {"images": images, "labels": labels})
    return name, first


def kept_images(run: Run, name: str) -> ImageSet | None:
    """The images of the user's own that the run has verdicts about; None if it has none of that name."""
    path = _images_path(run, name)
    if not path.exists():
        return None
    tensors, _ = load_tensors(path)
    try:
        return ImageSet(tensors["images"], tensors["labels"])
    except KeyError as error:
        raise LingraftError(f"{path} holds no images. Remove it, and verify them again.") from error


def _images_path(run: Run, name: str) -> Path:
    return run.inside(f"images/{name}.safetensors")


def _digests(images: Tensor) -> list[str]:
    return [digest_image(image) for image in images.float()]


def _agree(old: list[str], new: list[str]) -> bool:
    """Whether the shorter one is the beginning of the other."""
    return all(a == b for a, b in zip(old, new, strict=False))


def _begins_with(name: str, images: Tensor) -> bool:
    try:
        test = load(name, "test")
    except LingraftError:
        return False
    return len(images) <= len(test) and torch.equal(test.pixels(slice(len(images))), images.float())
