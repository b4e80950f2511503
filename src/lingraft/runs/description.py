"""`model.json`: what a model is and where it comes from."""

import math
import platform
from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from lingraft.ball import PIXELS, Eps, Radius, kept, kept_range, radius, value_range
from lingraft.data import ImageSet
from lingraft.errors import LingraftError
from lingraft.runs.origin import Origin
from lingraft.version import __version__

FORMAT = 1

#: More numbers than an image, or the neurons of a layer, of any network that can be verified.
LARGEST = 1 << 26


def _fits(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not shape or min(shape) < 1 or math.prod(shape) > LARGEST:
        raise ValueError(f"{shape} is not the shape of an image or a layer")
    return shape


#: Sizes of an image or of the neurons of a layer.
Shape = Annotated[tuple[int, ...], AfterValidator(_fits)]


def _read(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """For pydantic, whose errors are ValueErrors."""

    def read(value: Any) -> Any:
        try:
            return reader(value)
        except LingraftError as error:
            raise ValueError(str(error)) from error

    return read


#: ε, and the range of values, whole: nested lists where they are tensors.
KeptRadius = Annotated[Any, BeforeValidator(_read(radius)), PlainSerializer(kept)]
KeptRange = Annotated[Any, BeforeValidator(_read(value_range)), PlainSerializer(kept_range)]


class GraftedSite(BaseModel):
    """A site of a grafted model; its mask and its lines are in the weights."""

    model_config = ConfigDict(extra="forbid")

    name: str
    shape: Shape
    #: how many neurons are linear, and how many of these are pruned: 0 and never trained
    grafted: int
    pruned: int


class ModelDescription(BaseModel):
    """`model.json`: what is needed to rebuild the model, and where it comes from."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    format: int = FORMAT
    #: name in the zoo, or None for a network of the user's own
    architecture: str | None
    #: where a network of the user's own comes from, as far as that is known; `load` runs no code that it names
    origin: Origin | None = None
    input_shape: Shape
    classes: int = Field(le=LARGEST)
    mean: list[float] | None = None
    std: list[float] | None = None
    #: name or file of the data set; the digest of a file that the network was trained on
    data: str | None = None
    data_sha256: str | None = None
    #: where the test images are, if not there
    test_data: str | None = None
    #: radius to use where none is said: a number, or one for each feature
    eps: KeptRadius | None = None
    #: the range of values of the data
    clip: KeptRange = PIXELS
    seed: int | None = None
    #: the run this one was grafted from
    parent: str | None = None
    #: the sites that are a GraftedActivation, None for a model that is not grafted
    grafted: list[GraftedSite] | None = None
    versions: dict[str, str] = {}

    def check_fits(self, data: ImageSet, what: str) -> None:
        """Refuse images of another shape, and labels of classes that the model does not have."""
        shape, highest = tuple(data.images.shape[1:]), int(data.labels.max())
        if shape != self.input_shape:
            raise LingraftError(
                f"the model takes images of shape {self.input_shape}, but the {what} images have {shape}."
                " Choose a model and data that fit."
            )
        if highest >= self.classes:
            raise LingraftError(
                f"the model has {self.classes} classes, but a {what} label is {highest}. Labels count from 0."
            )

    def radius(self, given: Eps | None = None) -> Radius:
        """The given ε, else that of the run."""
        if given is None and self.eps is None:
            raise LingraftError("the run says no eps. Give one with --eps, e.g. --eps 2/255.")
        return radius(self.eps if given is None else given)

    def data_set(self, given: str | None = None, split: str = "train") -> str:
        """The given data set, else that of the run for this split."""
        name = given or (self.test_data if split == "test" else None) or self.data
        if name is None:
            raise LingraftError("the run says no data set. Give one with --data, e.g. --data cifar10.")
        return name

    @property
    def needs_code(self) -> bool:
        """Whether code of the user's own must be named to make the network."""
        return self.architecture is None and not (self.origin is not None and self.origin.is_onnx)


def versions() -> dict[str, str]:
    """Versions of what the figures of a run depend on."""
    return {"lingraft": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
