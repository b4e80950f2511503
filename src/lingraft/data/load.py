"""Data sets by name: lingraft's own, those that a user registers, and loading one.

A new data set of lingraft is a file beside this one with its record, `SPEC`, and a place in `BUILT_IN`; one of a user
is a call of `register`. All else asks `DATASETS`: commands, their errors, `lingraft data`, default radii.
"""

from pathlib import Path

from lingraft.ball import GIVEN, PIXELS, Clip
from lingraft.data import cifar10, digits, mnist, svhn
from lingraft.data.images import ImageSet
from lingraft.data.npz import is_file, spec_of_file
from lingraft.data.places import data_root
from lingraft.data.specs import DATASETS, DataSpec
from lingraft.errors import LingraftError
from lingraft.names import lookup

#: Splits, normalization and radii of MNIST, SVHN and CIFAR-10 are those of the original experiments (paper, Section 5).
BUILT_IN = {spec.name: spec for spec in (digits.SPEC, mnist.SPEC, svhn.SPEC, cifar10.SPEC)}
DATASETS.update(BUILT_IN)

SPLITS = ("train", "validation", "test")


def register(spec: DataSpec) -> DataSpec:
    """From now on `spec.name` is this data set wherever lingraft takes the name of one: `lingraft.data.load`, `--data`.

        def read(part: str, folder: Path) -> lingraft.ImageSet:
            with np.load(folder / f"mine-{part}.npz") as arrays:
                return lingraft.ImageSet.of((arrays["images"], arrays["labels"]))

        lingraft.data.register(
            lingraft.data.DataSpec(
                name="mine", title="my images", input_shape=(1, 8, 8), class_names=("cat", "dog"),
                mean=(0.5,), std=(0.25,), eps=0.1, validation_images=100, read=read,
            )
        )

    On the command line it is known where the module that registers it is imported first:
    `python -c "import mine; from lingraft.cli import main; main()" train --data mine --model digits-cnn`.
    Registering a name again replaces its data set; the names of lingraft's own are taken.
    """
    if spec.name in BUILT_IN:
        raise LingraftError(f"the data set {spec.name!r} is lingraft's own. Register yours under another name.")
    DATASETS[spec.name] = spec
    return spec


def spec_of(name: str) -> DataSpec:
    """The data set of this name, or that of a file, `mine.npz`."""
    return spec_of_file(name) if is_file(name) else lookup("data set", name, DATASETS)


def is_known(name: str | None) -> bool:
    """Whether a data set of this name can be loaded, if its files are there."""
    return name in DATASETS or is_file(name)


def load(name: str, split: str, folder: Path | None = None, clip: Clip = GIVEN) -> ImageSet:
    """The `train`, `validation` or `test` images of a data set, read from `folder` (default: `data_root()`).

    A file of your own is a data set by its path, e.g. `mine.npz`; see `lingraft.data.npz` for what is in it. `clip` is
    the range of values, see `ImageSet` (default: what the data say, else [0, 1]).

    Validation images are the last ones of the published training file: 6,000 of MNIST (leaving 54,000 for training),
    5,000 of CIFAR-10 (45,000), 5,000 of SVHN (the rest of what is there). The split of digits: see `digits.read`.
    """
    spec = spec_of(name)
    if split not in SPLITS:
        raise LingraftError(f"unknown split {split!r}. Known: {', '.join(SPLITS)}.")
    root = data_root() if folder is None else Path(folder)
    whole = spec.read("test" if split == "test" else "train", root)
    if clip == GIVEN and not spec.ranged:
        try:
            whole = whole.within(PIXELS)
        except LingraftError as error:
            raise LingraftError(f"{name}: {error} On the command line: --clip LOW,HIGH or --clip none.") from error
    else:
        whole = whole.within(clip)
    if split == "test":
        return whole
    train, validation = divide(spec, whole)
    return train if split == "train" else validation


def divide(spec: DataSpec, whole: ImageSet) -> tuple[ImageSet, ImageSet]:
    """The training file's images for training and, the last of them, for validation."""
    last = spec.validation_images
    if len(whole) <= last:
        raise LingraftError(
            f"{spec.name}: the training file has {len(whole):,} images, and the last {last:,} are for validation, "
            "so none are left to train on."
            + (f" Get all of them with `lingraft data fetch {spec.name}`." if spec.source else "")
        )
    return whole.take(slice(-last)), whole.take(slice(-last, None))
