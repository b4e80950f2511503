"""What a data set is, in one record. `load.py` has the table of all of them, and adds one's own to it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lingraft.ball import Radius
from lingraft.data.images import ImageSet
from lingraft.errors import LingraftError


@dataclass(frozen=True)
class PublishedFile:
    """A file as published: where it belongs in the data folder, its size in bytes, and its md5 sum."""

    path: str
    size: int
    md5: str

    @property
    def name(self) -> str:
        """Its name at the source."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """The files of a data set, and the addresses that all have them, the first choice first."""

    addresses: tuple[str, ...]
    files: tuple[PublishedFile, ...]


@dataclass(frozen=True)
class DataSpec:
    """A data set: everything that lingraft wants to know of it.

    `mean` and `std`, one for each channel and of pixels in [0, 1], are for the first layer of its models.
    """

    name: str
    title: str
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: radius to be robust in where none is asked for, in the values of the data; None: it must be asked for
    eps: Radius | None
    #: read(part, folder) gives the `train` or `test` part; `folder` is that of all data sets, `data_root()`
    read: Callable[[str, Path], ImageSet]
    #: how many of the last images of the training part are for validation
    validation_images: int
    #: images of the published training and test part; None: as many as there are
    train_images: int | None = None
    test_images: int | None = None
    #: whether the test images are others than those to train on
    divided: bool = True
    #: whether the data say the range of their values; if not, it is [0, 1] where no other is asked for
    ranged: bool = True
    #: whether training uses random crops (padding 4) and horizontal flips
    augment: bool = False
    #: what `lingraft data fetch` downloads; None: nothing
    source: Source | None = None

    def __post_init__(self) -> None:
        channels = self.input_shape[0]
        if len(self.mean) != channels or len(self.std) != channels:
            raise LingraftError(f"{self.name}: mean and std must have {channels} values, one for each channel.")
        if self.validation_images < 1:
            raise LingraftError(f"{self.name}: at least 1 image of the training part must be for validation.")

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def published(self, part: str) -> int | None:
        """How many images the `train` or `test` part has as published; None if that is not known."""
        return self.train_images if part == "train" else self.test_images


#: name → data set, in the order in which they were registered; filled by `load.py`.
DATASETS: dict[str, DataSpec] = {}
