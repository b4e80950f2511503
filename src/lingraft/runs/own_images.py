"""What the images of a request are called in a run: an image is known by its content.

Images of the user's own that a run has verdicts about are kept there, for the report and for later calls.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from lingraft.data import ImageSet, is_known, load
from lingraft.errors import LingraftError
from lingraft.runs.run import Run
from lingraft.runs.tensors import load_tensors, save_tensors
from lingraft.runs.verdicts import digest_image
from lingraft.solver.request import Request

#: Name of images that the run does not name.
OWN = "own"

#: Images of a test set that are looked at together.
BATCH = 1000


def locate(run: Run, request: Request) -> tuple[str, list[int]]:
    """What the labelled images of a request are called in this run, and the index of each.

    Where all of them are test images of the run's data set, that and their place in it. Otherwise they are the user's
    own: those that the run has keep their number, the others come behind them and are kept.
    """
    asked = list(zip(_digests(request.images.float()), request.labels or [], strict=True))
    description = run.describe()
    name = description.test_data or description.data or OWN
    if is_known(name):
        places = _places_in(name, request)
        if all(image in places for image in asked):
            return name, [places[image] for image in asked]
        name = OWN
    kept = kept_images(run, name)
    places = {} if kept is None else _places(zip(_digests(kept.images.float()), kept.labels.tolist(), strict=True))
    new, count = list[int](), 0 if kept is None else len(kept)
    for i, image in enumerate(asked):
        if image not in places:
            places[image] = count + len(new)
            new.append(i)
    if new:
        images, labels = request.images[new].float(), torch.tensor([asked[i][1] for i in new])
        if kept is not None:
            images, labels = torch.cat([kept.images, images]), torch.cat([kept.labels, labels])
        save_tensors(_images_path(run, name), {"images": images, "labels": labels})
    return name, [places[image] for image in asked]


def called(run: Run, data: ImageSet) -> str:
    """What images that came without a name are called in this run: that of its data set only if they begin it."""
    description = run.describe()
    name = description.test_data or description.data or OWN
    if not is_known(name):
        return name
    try:
        test = load(name, "test")
    except LingraftError:
        return OWN
    first = slice(len(data))
    if test.images.shape[1:] != data.images.shape[1:] or len(test) < len(data):
        return OWN
    same = torch.equal(test.pixels(first), data.pixels().cpu()) and torch.equal(test.labels[first], data.labels.cpu())
    return name if same else OWN


def kept_images(run: Run, name: str) -> ImageSet | None:
    """The images of the user's own that the run has verdicts about; None if it has none of that name."""
    path = _images_path(run, name)
    if not path.exists():
        return None
    tensors, _ = load_tensors(path)
    try:
        return ImageSet(tensors["images"], tensors["labels"], clip=None)  # of any range: verdicts say of which
    except KeyError as error:
        raise LingraftError(f"{path} holds no images. Remove it, and verify them again.") from error


def _images_path(run: Run, name: str) -> Path:
    return run.inside(f"images/{name}.safetensors")


def _digests(images: Tensor) -> Iterator[str]:
    return (digest_image(image) for image in images)


def _places(images: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Digest and label of an image → where it stands first."""
    places: dict[tuple[str, int], int] = {}
    for i, image in enumerate(images):
        places.setdefault(image, i)
    return places


def _places_in(name: str, request: Request) -> dict[tuple[str, int], int]:
    """Of the test images of a data set; none if it cannot be read, or cannot be what was asked about."""
    try:
        test = load(name, "test")
    except LingraftError:
        return {}
    exact = torch.equal(request.images.float().to(request.images.dtype), request.images)
    if not exact or test.images.shape[1:] != request.images.shape[1:]:
        return {}
    parts = (test.pixels(slice(start, start + BATCH)) for start in range(0, len(test), BATCH))
    return _places(zip((digest for part in parts for digest in _digests(part)), test.labels.tolist(), strict=True))
