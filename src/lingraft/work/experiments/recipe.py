"""Recipes: which runs a table or figure of the paper needs, as short YAML files that a person can read."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lingraft.errors import LingraftError
from lingraft.names import lookup

#: name in a recipe → heading, what it means
COLUMNS = {
    "unr": ("UNR %", "unstable neurons of all neurons, mean over the images whose neurons were bounded in every row"),
    "va": ("VA %", "verified accuracy: images proven of the images tried, and its 95 % interval (Wilson)"),
    "sa": ("SA %", "standard accuracy on all test images"),
    "ra": ("RA %", "robust accuracy: images that withstand PGD"),
    "time": ("Time s", "mean time of a verdict, without images misclassified or attacked successfully"),
    "va_corners": ("VA corners %", "verified accuracy on the corner cases"),
    "sa_corners": ("SA corners %", "standard accuracy on the corner cases"),
    "training": ("Training h", "hours of training, with those of the network it was grafted from"),
}

#: What can be measured of a run, in this order: the command that does it → what it gives.
MEASURES = {"score": "instability and significance", "evaluate": "SA and RA", "verify": "VA, UNR and Time"}

#: Options of a command, as on the command line without the dashes; `true` is a flag, `false` leaves an option out.
Options = dict[str, str | int | float | bool]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Network(_Strict):
    """A network on a data set."""

    name: str
    model: str
    data: str
    eps: str
    #: the network of the paper whose figures stand beside this one's, where that is another one
    instead_of: str | None = None
    #: changes to the options of verify
    verify: Options = {}

    @property
    def in_paper(self) -> str:
        """What the paper's figures are listed under."""
        return self.instead_of or self.name


class Vary(_Strict):
    """A row for each value of one option of `lingraft graft`."""

    option: str
    values: list[float] = Field(min_length=1)


class Row(_Strict):
    """How a network is made: trained and, if `graft` is given, grafted."""

    name: str
    #: changes to the options of `lingraft train`; {model} in a value is the name of the network's model
    train: Options = {}
    #: options of `lingraft graft`
    graft: Options | None = None
    vary: Vary | None = None
    #: name of a network → the paper's figures, in the order of the columns
    paper: dict[str, list[float | None]] = {}
    #: scale → the networks (their names) that this row is for at that scale; a scale that is not named: all
    only: dict[str, list[str]] = {}


class Recipe(_Strict):
    """A table or figure of the paper."""

    title: str
    #: where it is in the paper
    paper: str
    about: str
    columns: list[str]
    measure: list[str] = ["evaluate", "verify"]
    networks: list[Network] = Field(min_length=1)
    #: scale → the networks used instead of `networks`
    networks_at: dict[str, list[Network]] = {}
    rows: list[Row] = Field(min_length=1)
    #: changes to the options of score
    score: Options = {}
    #: scale → changes to the options of verify
    verify_at: dict[str, Options] = {}
    #: parts of the report of the runs (their keys) that are the paper's figure
    figures: list[str] = []
    #: the row that the others are compared with, image by image
    compare_with: str | None = None
    #: of a recipe on corner cases, which compares plain with grafted networks: at least so many of each
    corners: int = 0

    @field_validator("columns")
    @classmethod
    def _columns(cls, names: list[str]) -> list[str]:
        for name in names:
            lookup("column", name, COLUMNS)
        return names

    @field_validator("measure")
    @classmethod
    def _measures(cls, names: list[str]) -> list[str]:
        for name in names:
            lookup("measure", name, MEASURES)
        return [name for name in MEASURES if name in names]

    @model_validator(mode="after")
    def _fits(self) -> "Recipe":
        known = {network.name: network for network in self.networks}
        for row in self.rows:
            for name, figures in row.paper.items():
                lookup("network", name, known)
                if len(figures) != len(self.columns):
                    raise ValueError(
                        f"row {row.name!r}: {len(figures)} figures of the paper for {len(self.columns)} columns"
                    )
            if row.vary and row.graft is None:
                raise ValueError(f"row {row.name!r}: only options of graft can be varied")
        if self.corners and {row.graft is None for row in self.rows} != {True, False}:
            raise ValueError("corner cases need a row that is grafted and one that is not")
        if self.compare_with is not None:
            lookup("row", self.compare_with, {row.name: row for row in self.rows})
        if len({row.name for row in self.rows}) < len(self.rows):
            raise ValueError("two rows have the same name")
        return self

    def networks_of(self, scale: str) -> list[Network]:
        """The networks at a scale."""
        return self.networks_at.get(scale, self.networks)


class Scale(_Strict):
    """How thorough a reproduction is: options for the commands, the same for every recipe."""

    about: str
    #: name of a model → the network that stands for all networks with that model; "*": for the others
    networks: dict[str, Network] = {}
    train: Options
    graft: Options
    score: Options = {}
    evaluate: Options
    verify: Options
    #: name of a data set, a model or a method of training, or "DATA METHOD" → changes to the options of train and graft
    train_on: dict[str, Options] = {}
    graft_on: dict[str, Options] = {}
    #: model → about how many minutes an epoch takes on two cores
    minutes: dict[str, float] = {}
    #: model → about how many seconds CROWN takes for an image, where that is more than half a second
    bounding: dict[str, float] = {}

    def network(self, network: Network) -> Network:
        """The network that is really used for `network`."""
        found = self.networks.get(network.model) or self.networks.get("*")
        return network if found is None else found.model_copy(update={"instead_of": network.in_paper})


def parse(text: str, model: type[Any], source: str) -> Any:
    """A recipe (or the scales) from YAML; anything else is a LingraftError that says where it is wrong."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise LingraftError(f"{source} is not YAML ({' '.join(str(error).split())}). Correct it.") from error
    if not isinstance(content, Mapping):
        raise LingraftError(f"{source} is not a recipe: it should hold names and values. Correct it.")
    try:
        return model.model_validate(content)
    except LingraftError as error:
        raise LingraftError(f"{source}: {error}") from error
    except ValidationError as error:
        what = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'recipe'}: {e['msg']}" for e in error.errors())
        raise LingraftError(f"{source} is not a recipe ({what}). Correct it.") from error


class _Scales(_Strict):
    scales: dict[str, Scale]


@cache
def scales() -> dict[str, Scale]:
    """smoke, laptop and paper."""
    text = files("lingraft.work.experiments").joinpath("scales.yaml").read_text(encoding="utf-8")
    return dict(parse(text, _Scales, "scales.yaml").scales)


@cache
def recipes() -> dict[str, Recipe]:
    """All recipes, in the order of the paper: name → recipe."""
    return dict(_recipes())


def _recipes() -> Iterator[tuple[str, Recipe]]:
    folder = files("lingraft.work.experiments").joinpath("recipes")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".yaml"):
            # 03-criterion.yaml: the number puts them in the order of the paper
            name = file.name.removesuffix(".yaml").split("-", 1)[1]
            yield name, parse(file.read_text(encoding="utf-8"), Recipe, file.name)
