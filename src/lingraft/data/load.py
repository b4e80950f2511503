"""Loading a data set by name."""

from collections.abc import Callable
from pathlib import Path

from lingraft.data import cifar10, digits, mnist, svhn
from lingraft.data.images import ImageSet
from lingraft.data.places import data_root
from lingraft.data.specs import DATASETS, DataSpec
from lingraft.errors import LingraftError
from lingraft.names import lookup

#: name → read(part, root), where part is `train` or `test`
READERS: dict[str, Callable[[str, Path], ImageSet]] = {
    "digits": digits.read,
    "mnist": mnist.read,
    "svhn": svhn.read,
    "cifar10": cifar10.read,
}
SPLITS = ("train", "validation", "test")


def load(name: str, split: str, folder: Path | None = None) -> ImageSet:
    """The `train`, `validation` or `test` images of a data set, read from `folder` (default: `data_root()`).

    Validation images are the last ones of the published training file: 6,000 of MNIST (leaving 54,000 for training),
    5,000 of CIFAR-10 (45,000), 5,000 of SVHN (the rest of what is there). The split of digits: see `digits.read`.
    """
    spec = lookup("data set", name, DATASETS)
    if split not in SPLITS:
        raise LingraftError(f"unknown split {split!r}. Known: {', '.join(SPLITS)}.")
    root = data_root() if folder is None else Path(folder)
    if split == "test":
        return READERS[name]("test", root)
    train, validation = divide(spec, READERS[name]("train", root))
    return train if split == "train" else validation


def divide(spec: DataSpec, whole: ImageSet) -> tuple[ImageSet, ImageSet]:
    """The training file's images for training and, the last of them, for validation."""
    last = spec.validation_images
    if len(whole) <= last:
        raise LingraftError(
            f"{spec.name}: the training file has {len(whole):,} images, and the last {last:,} are for validation, "
            f"so none are left to train on. Get all of them with `lingraft data fetch {spec.name}`."
        )
    return whole.take(slice(-last)), whole.take(slice(-last, None))
