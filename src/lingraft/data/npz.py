"""Data of the user's own in a file of NumPy arrays, which is a data set by its path: `--data mine.npz`.

    images, labels                          all there is: for training or for testing, whatever it is named for
    train_images, train_labels              for training, if the file also has others
    validation_images, validation_labels    for choosing the best epoch; else the last tenth of those for training
    test_images, test_labels                for testing
    lower, upper                            lowest and highest values, numbers or one for each feature; else [0, 1]
    eps                                     radius to use where none is asked for, a number or one for each feature

Images are floats, or bytes (uint8) from 0 to 255, and may have any shape (N, …); labels are whole numbers from 0.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lingraft.ball import Radius, Range, radius, value_range
from lingraft.data.arrays import read_arrays
from lingraft.data.images import ImageSet
from lingraft.data.specs import DataSpec
from lingraft.errors import LingraftError

ENDING = ".npz"

#: Share of the training images, the last ones, that are for validation where nothing else is.
HELD_OUT = 0.1

PARTS = ("train", "validation", "test")

#: Every array that means something.
NAMES = {f"{part}{kind}" for part in ("", "train_", "validation_", "test_") for kind in ("images", "labels")}
NAMES |= {"lower", "upper", "eps"}


def is_file(name: str | None) -> bool:
    """Whether what is named as a data set is a file."""
    return name is not None and name.endswith(ENDING)


def spec_of_file(name: str) -> DataSpec:
    """The data set that a file is: as those of lingraft, but that it need not say a radius or a range of values."""
    path = Path(name)
    if not path.is_file():
        raise LingraftError(f"there is no file {path}. Name one with arrays images and labels, see numpy.savez.")
    about = path.stat()
    return _spec(name, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=2)  # a file for training and one for testing; a file that changes is another one
def _spec(name: str, changed: int, size: int) -> DataSpec:
    path = Path(name)
    arrays = read_arrays(path, NAMES)
    clip, eps = _settings(path, arrays)
    whole = _part(path, arrays, "", clip)
    parts = {part: found for part in PARTS if (found := _part(path, arrays, f"{part}_", clip)) is not None}
    if whole is not None and "train" in parts:
        raise LingraftError(f"{path} has images as well as train_images. Save those for training once.")
    if whole is not None:
        parts = {"train": whole, **parts} if parts else {"train": whole, "test": whole}
    if not parts:
        raise LingraftError(f"{path} has no images. Save them with numpy.savez(…, images=images, labels=labels).")
    shapes = {tuple(part.images.shape[1:]) for part in parts.values()}
    if len(shapes) > 1:
        raise LingraftError(f"{path} has images of different shapes: {', '.join(map(str, sorted(shapes)))}.")
    some = parts.get("train", next(iter(parts.values())))
    aside = len(parts["validation"]) if "validation" in parts else max(1, round(HELD_OUT * len(some)))
    mean, std = _statistics(some)

    def read(part: str, folder: Path) -> ImageSet:
        if part not in parts:
            what = "training" if part == "train" else part
            raise LingraftError(
                f"{path} has no {what} images. Save them in it as {part}_images and {part}_labels, or name a file that"
                f" has them: --data{' (train, graft: --test-data)' if part == 'test' else ''}."
            )
        if part == "train" and "validation" in parts:
            both = parts["train"], parts["validation"]
            return ImageSet(torch.cat([one.images for one in both]), torch.cat([one.labels for one in both]), clip)
        return parts[part]

    return DataSpec(
        name=name,
        title=path.name,
        input_shape=shapes.pop(),
        class_names=tuple(str(i) for i in range(1 + max(int(part.labels.max()) for part in parts.values()))),
        mean=mean,
        std=std,
        eps=eps,
        read=read,
        validation_images=aside,
        divided=parts.get("train") is not parts.get("test"),
        ranged="lower" in arrays,
    )


def _settings(path: Path, arrays: Mapping[str, NDArray]) -> tuple[Range, Radius | None]:
    """The range of values, without limits if the file says none, and the radius."""
    if ("lower" in arrays) != ("upper" in arrays):
        raise LingraftError(f"{path} has only one of lower and upper. Save both, the ends of the range of values.")
    try:
        clip = value_range((arrays["lower"], arrays["upper"])) if "lower" in arrays else None
        return clip, radius(arrays["eps"], alike=True) if "eps" in arrays else None
    except LingraftError as error:
        raise LingraftError(f"{path}: {error}") from error


def _part(path: Path, arrays: Mapping[str, NDArray], prefix: str, clip: Range) -> ImageSet | None:
    """The images of a part with their labels; None if the file has neither."""
    names = [f"{prefix}images", f"{prefix}labels"]
    missing = [name for name in names if name not in arrays]
    if len(missing) == 2:
        return None
    if missing:
        raise LingraftError(f"{path} has no {missing[0]}. Save both {' and '.join(names)} in it.")
    images, labels = (arrays[name] for name in names)
    if images.dtype.kind != "f" and images.dtype != np.uint8:
        raise LingraftError(f"{path}: {names[0]} must be floats or bytes (uint8), not {images.dtype}. Convert them.")
    if labels.dtype.kind not in "iu":
        raise LingraftError(f"{path}: {names[1]} must be whole numbers, classes from 0, not {labels.dtype}.")
    try:
        return ImageSet.of((images, labels.astype(np.int64)), clip=clip)
    except LingraftError as error:
        raise LingraftError(f"{path}, {names[0]}: {error}") from error


def _statistics(data: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel or feature, for the first layer of networks of the zoo."""
    values = data.pixels().double().transpose(0, 1).flatten(1)
    deviation = values.std(1, correction=0)
    return tuple(values.mean(1).tolist()), tuple(torch.where(deviation > 0, deviation, 1.0).tolist())
