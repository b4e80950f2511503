"""A run: a folder with a model and everything measured of it.

    model.json           what the model is: architecture, normalization, data, seed, versions
    model.safetensors    its weights
    settings.yaml        the options that made it, for --config
    network.onnx         the ONNX file that the network was read from, if it was
    history.jsonl        training, one line an epoch
    checkpoint.safetensors   where training goes on after a stop
    scores.npz           instability and significance of every neuron; in a grafted run, those it was chosen by
    scores-grafted.npz   the same of the grafted network itself
    scores-test.npz      the same of the run's network on test images: to report, never to choose by
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
    guided.jsonl, guided/    the steps of `lingraft graft --guided`, of which this run is the best
    figures/             pictures

Nothing in it is ever unpickled.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from rich.markup import escape
from torch import nn

from lingraft.command import current
from lingraft.errors import LingraftError
from lingraft.files import append_line, read_json, read_lines, remove_parts, replacing, write_json
from lingraft.model import zoo
from lingraft.model.surgery import prepared
from lingraft.printable import printable
from lingraft.progress import console
from lingraft.runs.description import FORMAT, ModelDescription, versions
from lingraft.runs.gallery import located
from lingraft.runs.measured import RunSummary
from lingraft.runs.origin import network_from, origin_of
from lingraft.runs.tensors import load_tensors, load_weights, save_tensors


class Run:
    """A run folder, or gallery:NAME. Making the object reads and writes nothing but a copy of that network.

    `model` is for a folder that holds a network of your own, wherever one takes a Run: such a module, whose weights are
    then replaced, or the code that makes it, e.g. "net.py:make_net".
    """

    def __init__(self, path: str | Path, model: nn.Module | str | None = None):
        self.path, self.model = located(path), model
        self.description_path = self.path / "model.json"
        self.weights_path = self.path / "model.safetensors"
        self.onnx_path = self.path / "network.onnx"
        self.checkpoint_path = self.path / "checkpoint.safetensors"
        self.history_path = self.path / "history.jsonl"
        self.summary_path = self.path / "summary.json"
        self.scores_path = self.path / "scores.npz"
        self.grafted_scores_path = self.path / "scores-grafted.npz"
        self.test_scores_path = self.path / "scores-test.npz"
        self.mask_path = self.path / "mask.safetensors"
        self.verdicts_path = self.path / "verdicts.jsonl"
        self.corner_verdicts_path = self.path / "corners" / "verdicts.jsonl"
        self.commands_path = self.path / "commands.jsonl"
        self.settings_path = self.path / "settings.yaml"
        self.figures = self.path / "figures"

    def __repr__(self) -> str:
        if not self.is_described():
            return f"Run({str(self.path)!r}, without a model)"
        about = self.describe()
        parts = [about.architecture or "a model of your own"]
        parts += [f"data {about.data}"] if about.data else []
        parts += [f"eps {about.eps:.4g}"] if isinstance(about.eps, float) else []
        grafted = sum(site.grafted for site in about.grafted or [])
        parts += [f"{grafted:,} neurons grafted"] if grafted else []
        return f"Run({str(self.path)!r}, {', '.join(parts)})"

    def describe(self) -> ModelDescription:
        """What `model.json` says."""
        if not self.description_path.exists():
            raise LingraftError(
                f"{self.path} is not a run folder: it has no model.json. Make one with `lingraft train` or, of a"
                " trained network of your own, with `lingraft save`."
            )
        try:
            description = ModelDescription.model_validate(read_json(self.description_path))
        except ValidationError as error:
            raise LingraftError(
                f"{self.description_path} does not describe a model ({_in_words(error)}). Restore it."
            ) from error
        if description.format != FORMAT:
            raise LingraftError(
                f"{self.path} has run format {description.format}, this lingraft reads {FORMAT}."
                " Use the version that wrote it."
            )
        return description

    def scores_path_of(self, split: str) -> Path:
        """Where scores of the run's own network on training ("train") or test images ("test") belong."""
        return self.test_scores_path if split == "test" else self.own_scores_path

    @property
    def own_scores_path(self) -> Path:
        """That of training images: in a grafted run, scores.npz are those it was chosen by."""
        return self.scores_path if self.describe().grafted is None else self.grafted_scores_path

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

    def keep_onnx(self, source: Path) -> None:
        """Keep the ONNX file that the network was read from, with weights that it may have in other files."""
        from lingraft.formats.onnx_file import read_model  # slow to import, and few runs need it

        _, content = read_model(source)
        with replacing(self.onnx_path) as part:
            part.write_bytes(content)

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
            self.test_scores_path,
            self.commands_path,
            self.settings_path,
        ):
            path.unlink(missing_ok=True)

    def summary(self) -> RunSummary:
        """The figures measured so far."""
        sections = read_json(self.summary_path) if self.summary_path.exists() else {}
        wrong = [name for name, figures in sections.items() if not isinstance(figures, dict)]
        if wrong:
            raise LingraftError(f"{self.summary_path} is damaged: {wrong[0]!r} has no figures. Restore it.")
        try:
            return RunSummary.model_validate(sections)
        except ValidationError as error:
            raise LingraftError(
                f"{self.summary_path} does not say what lingraft writes there ({_in_words(error)}). Restore it;"
                " if nobody changed it, please report this."
            ) from error

    def add_to_summary(self, section: str, figures: Mapping[str, Any], name: str | None = None) -> None:
        """Replace one section of `summary.json`; with `name`, only the figures of that name in it."""
        known = self.summary().as_dict()
        added = dict(figures) if name is None else {**known.get(section, {}), name: dict(figures)}
        summary = RunSummary.model_validate({**known, section: added})
        write_json(self.summary_path, summary.as_dict())
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


def load(run: str | Path | Run, model: nn.Module | str | None = None, device: str | torch.device = "cpu") -> nn.Module:
    """The model of a run folder, in eval mode, ready to use on images in [0, 1], or what else it was trained on.

    A network of the zoo is built by its name, one that came from an ONNX file from its copy. For a module of your own
    pass a new instance as `model`, whose weights are then replaced, or name the code that makes one, "net.py:make_net":
    what a run says of its code is never run unasked. Of a grafted run you get the grafted model (of your own module a
    grafted copy).
    """
    run = run if isinstance(run, Run) else Run(run)
    description = run.describe()
    network = _network(run, description, run.model if model is None else model)
    if description.grafted is not None:
        network = prepared(network, {site.name: site.shape for site in description.grafted})
    tensors, _ = load_tensors(run.weights_path)
    load_weights(network, tensors, run.weights_path)
    return network.to(device).eval()


def _network(run: Run, description: ModelDescription, model: nn.Module | str | None) -> nn.Module:
    """The network of a run without its weights: what is given for it, else what the run can build without code."""
    origin = description.origin
    if isinstance(model, nn.Module):
        return model
    if model is not None:
        network: nn.Module = network_from(model)
        now = origin_of(model)
        if origin is not None and now is not None and now.sha256 != origin.sha256:
            console.print(
                f"[yellow]note:[/] {escape(now.place)} is not what {escape(str(run.path))} was made with"
                f" ({escape(printable(origin.place))}): the file has changed, or it is another one.",
                highlight=False,
                soft_wrap=True,
            )
        return network
    if description.architecture is not None:
        return _build(description, run.weights_path)
    if origin is not None and origin.is_onnx:
        return network_from(run.onnx_path)
    if origin is None:
        raise LingraftError(
            f"{run.path} holds a model of your own. Pass it: lingraft.load(run, model=YourModel()), or name the code"
            " that makes it: --model net.py:make_net."
        )
    raise LingraftError(
        f"{run.path} holds a model of your own, which {origin.place} makes. lingraft runs no code that you do not name:"
        f" if you trust it, add --model {origin.place}. In Python: lingraft.Run(path, model={origin.place!r}), or"
        " lingraft.load(path, model=YourModel())."
    )


def _build(description: ModelDescription, weights: Path) -> nn.Module:
    """The network that is described, unless it is larger than its weights: a description may say anything."""
    assert description.architecture is not None
    settings = (description.input_shape, description.classes, description.mean, description.std)
    with torch.device("meta"):  # takes no memory
        planned = zoo.build(description.architecture, *settings)
    # two bytes for a number at least: weights may be kept in half precision
    needed = sum(2 * tensor.numel() for tensor in planned.state_dict().values())
    there = weights.stat().st_size if weights.exists() else needed
    if needed > there:
        raise LingraftError(
            f"the weights of {weights} do not fit the model: they have {there:,} bytes instead of {needed:,}."
            " Is it the right model?"
        )
    return zoo.build(description.architecture, *settings)


def _in_words(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
