"""A run: a folder with a model and everything measured of it.

    model.json           what the model is: architecture, normalization, data, seed, versions
    model.safetensors    its weights
    history.jsonl        training, one line an epoch
    checkpoint.safetensors   where training goes on after a stop
    scores.npz           instability and significance of every neuron; in a grafted run, those it was chosen by
    scores-grafted.npz   the same of the grafted network itself
    mask.safetensors     the neurons that `lingraft select` chose
    summary.json         the figures measured: SA, RA, VA …
    verdicts.jsonl       verification, one line an image
    witnesses/           counterexamples
    images/              images of the user's own that there are verdicts about
    certificates/        certificates, and the network as ONNX that they are about
    corners/             corner cases, and the verdicts on them
    compare/             what another verifier says of the same images
    commands.jsonl       the commands that made all this, as they were typed
    search/              candidates of `lingraft graft RUN --method auto`, and their Pareto front
    figures/             pictures

Nothing in it is ever unpickled.
"""

import json
import math
import platform
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lingraft import zoo
from lingraft.command import current
from lingraft.errors import LingraftError
from lingraft.files import append_line, read_json, read_lines, remove_parts, replacing, write_json

if TYPE_CHECKING:
    from lingraft.data import ImageSet

FORMAT = 1

#: More numbers than an image, or the neurons of a layer, of any network that can be verified.
LARGEST = 1 << 26

#: Name of the checksum in the metadata of a safetensors file; files from elsewhere have none.
_CHECKSUM = "crc32"


def _fits(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not shape or min(shape) < 1 or math.prod(shape) > LARGEST:
        raise ValueError(f"{shape} is not the shape of an image or a layer")
    return shape


#: Sizes of an image or of the neurons of a layer.
Shape = Annotated[tuple[int, ...], AfterValidator(_fits)]


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
    #: name in the zoo, or None for a module of the user's own, which `load` must then be given
    architecture: str | None
    input_shape: Shape
    classes: int = Field(le=LARGEST)
    mean: list[float] | None = None
    std: list[float] | None = None
    data: str | None = None
    eps: float | None = None
    seed: int | None = None
    #: the run this one was grafted from
    parent: str | None = None
    #: the sites that are a GraftedActivation, None for a model that is not grafted
    grafted: list[GraftedSite] | None = None
    versions: dict[str, str] = {}

    def check_fits(self, data: "ImageSet", what: str) -> None:
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

    def radius(self, given: float | None = None) -> float:
        """The given ε, else that of the run."""
        if given is None and self.eps is None:
            raise LingraftError("the run says no eps. Give one with --eps, e.g. --eps 2/255.")
        return float(self.eps if given is None else given)  # type: ignore[arg-type]

    def data_set(self, given: str | None = None) -> str:
        """The given data set, else that of the run."""
        name = given or self.data
        if name is None:
            raise LingraftError("the run says no data set. Give one with --data, e.g. --data cifar10.")
        return name


def versions() -> dict[str, str]:
    """Versions of what the figures of a run depend on."""
    from lingraft import __version__

    return {"lingraft": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None) -> None:
    """Write tensors and JSON metadata to a safetensors file, atomically and with a checksum of them all."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    texts = {key: json.dumps(value) for key, value in (metadata or {}).items()}
    with replacing(path) as part:
        # not `save_file`: it makes files that only their owner can read, and its I/O errors are not OSErrors
        part.write_bytes(save(plain, metadata={**texts, _CHECKSUM: _checksum(plain, texts)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a safetensors file; a missing or damaged one is a LingraftError that names it."""
    try:
        with safe_open(path, framework="pt") as file:
            texts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        told = texts.pop(_CHECKSUM, None)
        if told is not None and told != _checksum(tensors, texts):
            raise ValueError("its checksum is wrong")
        return tensors, {key: json.loads(value) for key, value in texts.items()}
    except FileNotFoundError as error:
        raise LingraftError(f"{path} is missing. Is {path.parent} a run folder made by `lingraft train`?") from error
    except (SafetensorError, OSError, ValueError, RecursionError, MemoryError) as error:
        raise LingraftError(f"{path} is damaged ({error}). Restore it or make the run again.") from error


def _checksum(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """Changes with every bit of the tensors on the CPU, their names, types and shapes, and the texts."""
    value = zlib.crc32(json.dumps(sorted(texts.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        value = zlib.crc32(repr((name, tensor.dtype, tuple(tensor.shape))).encode(), value)
        value = zlib.crc32(tensor.view(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


class Run:
    """A run folder. Making the object reads and writes nothing."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.description_path = self.path / "model.json"
        self.weights_path = self.path / "model.safetensors"
        self.checkpoint_path = self.path / "checkpoint.safetensors"
        self.history_path = self.path / "history.jsonl"
        self.summary_path = self.path / "summary.json"
        self.scores_path = self.path / "scores.npz"
        self.grafted_scores_path = self.path / "scores-grafted.npz"
        self.verdicts_path = self.path / "verdicts.jsonl"
        self.commands_path = self.path / "commands.jsonl"
        self.figures = self.path / "figures"

    def describe(self) -> ModelDescription:
        """What `model.json` says."""
        if not self.description_path.exists():
            raise LingraftError(
                f"{self.path} is not a run folder: it has no model.json. Make one with `lingraft train`."
            )
        try:
            description = ModelDescription.model_validate(read_json(self.description_path))
        except ValidationError as error:
            what = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise LingraftError(f"{self.description_path} does not describe a model ({what}). Restore it.") from error
        if description.format != FORMAT:
            raise LingraftError(
                f"{self.path} has run format {description.format}, this lingraft reads {FORMAT}."
                " Use the version that wrote it."
            )
        return description

    def is_described(self) -> bool:
        """Whether there is a `model.json` that can be read."""
        try:
            self.describe()
        except LingraftError:
            return False
        return True

    def write_description(self, description: ModelDescription) -> None:
        """Write `model.json`, with the versions in use now."""
        description.versions = versions()
        write_json(self.description_path, description.model_dump(mode="json"))

    def save_weights(self, model: nn.Module, metadata: Mapping[str, Any] | None = None) -> None:
        """Write `model.safetensors`, with what is said of the weights as metadata."""
        save_tensors(self.weights_path, model.state_dict(), metadata)

    def inside(self, name: str) -> Path:
        """The path of a file that a record of the run names; a LingraftError if it is not in the run's folder."""
        path = self.path / name
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise LingraftError(f"{self.path} names a file outside of it, {path}. Do not trust this run.")
        return path

    def remove_parts(self) -> None:
        """Remove what a process killed in the middle of a save left behind."""
        remove_parts(self.path)

    def remove_results(self) -> None:
        """Remove what training wrote and what was measured of it; first the checkpoint, which vouches for the rest."""
        for path in (
            self.checkpoint_path,
            self.weights_path,
            self.history_path,
            self.summary_path,
            self.scores_path,
            self.grafted_scores_path,
            self.commands_path,
        ):
            path.unlink(missing_ok=True)

    def summary(self) -> dict[str, Any]:
        """The figures measured so far."""
        if not self.summary_path.exists():
            return {}
        sections = read_json(self.summary_path)
        wrong = [name for name, figures in sections.items() if not isinstance(figures, dict)]
        if wrong:
            raise LingraftError(f"{self.summary_path} is damaged: {wrong[0]!r} has no figures. Restore it.")
        return sections

    def add_to_summary(self, section: str, figures: Mapping[str, Any]) -> None:
        """Replace one section of `summary.json`."""
        write_json(self.summary_path, {**self.summary(), section: dict(figures)})
        self.keep_command()

    def keep_command(self) -> None:
        """Add the command that is running to `commands.jsonl`, once; from Python, where there is none, add nothing."""
        command = current()
        if command is None:
            return
        record = {"command": command.line, "started": command.started, "versions": versions()}
        if record not in self.commands():
            append_line(self.commands_path, record)

    def commands(self) -> list[dict[str, Any]]:
        """The commands that measured or made something in this folder: command, started (UTC), versions."""
        return read_lines(self.commands_path)


def load(run: str | Path | Run, model: nn.Module | None = None, device: str | torch.device = "cpu") -> nn.Module:
    """The model of a run folder, in eval mode, ready to use on images in [0, 1].

    A network of the zoo is built by its name; for a module of your own pass a new instance as `model`,
    whose weights are then replaced. Of a grafted run you get the grafted model (of your own module a grafted copy).
    """
    run = run if isinstance(run, Run) else Run(run)
    description = run.describe()
    if model is None:
        if description.architecture is None:
            raise LingraftError(
                f"{run.path} holds a model of your own. Pass it: lingraft.load(run, model=YourModel())."
            )
        model = _build(description, run.weights_path)
    if description.grafted is not None:
        from lingraft.grafting.surgery import prepared

        model = prepared(model, {site.name: site.shape for site in description.grafted})
    tensors, _ = load_tensors(run.weights_path)
    load_weights(model, tensors, run.weights_path)
    return model.to(device).eval()


def _build(description: ModelDescription, weights: Path) -> nn.Module:
    """The network that is described, unless it is larger than its weights: a description may say anything."""
    assert description.architecture is not None
    settings = (description.input_shape, description.classes, description.mean, description.std)
    with torch.device("meta"):  # takes no memory
        planned = zoo.build(description.architecture, *settings)
    needed = sum(tensor.numel() * tensor.element_size() for tensor in planned.state_dict().values())
    there = weights.stat().st_size if weights.exists() else needed
    if needed > there:
        raise LingraftError(
            f"the weights of {weights} do not fit the model: they have {there:,} bytes instead of {needed:,}."
            " Is it the right model?"
        )
    return zoo.build(description.architecture, *settings)


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Put `tensors` into `model`, or say which ones do not fit and that they came from `source`."""
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        what = " ".join(str(error).split())
        raise LingraftError(f"the weights of {source} do not fit the model ({what}). Is it the right model?") from error
    _reject_non_finite(tensors, source)


def _reject_non_finite(tensors: Mapping[str, Tensor], source: Path) -> None:
    broken: Sequence[str] = [n for n, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
    if broken:
        raise LingraftError(f"{source} has NaN or infinite weights in {', '.join(broken)}. Train the model again.")
