"""Two verifiers on the same instances: who knew what, after how long, and whether they contradict each other.

`lingraft compare`.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from lingraft.ball import GIVEN, Clip, Eps
from lingraft.errors import LingraftError
from lingraft.files import write_json
from lingraft.formats.answer import Answer
from lingraft.formats.benchmark import NETWORK, Entry, Properties, read_instances, write_properties
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_grafted import Form
from lingraft.pool.place import Place
from lingraft.runs.holding import holding
from lingraft.solver.request import Limits
from lingraft.version import __version__
from lingraft.work.exporting import COMPARED_IMAGES, plain_network
from lingraft.work.given import Folder, images_of, kept_run, radius_of
from lingraft.work.vnncomp.answer_log import AnswerLog
from lingraft.work.vnncomp.other_verifiers import find_tool
from lingraft.work.vnncomp.run_benchmark import complete, decide_all
from lingraft.work.vnncomp.tool_runner import ToolRunner


@dataclass(frozen=True)
class Pair:
    """The answers of lingraft and of another tool to one instance."""

    entry: Entry
    ours: Answer
    theirs: Answer

    @property
    def contradiction(self) -> bool:
        """One has a counterexample that onnxruntime confirms, the other says that there is none."""
        return any(
            a.word == "sat" and a.counterexample is not None and b.word == "unsat"
            for a, b in ((self.ours, self.theirs), (self.theirs, self.ours))
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the counterexamples."""
        sides = {"ours": self.ours, "theirs": self.theirs}
        return {
            "property": self.entry.spec,
            **{
                f"{side}_{name}": getattr(answer, attribute)
                for side, answer in sides.items()
                for name, attribute in _KEPT
            },
            "contradiction": self.contradiction,
        }

    def save(self, folder: Path) -> Path:
        """Everything needed to look into a contradiction, in a folder of its own."""
        place = folder / self.entry.name
        place.mkdir(parents=True, exist_ok=True)
        for file in (self.entry.onnx, self.entry.vnnlib):
            shutil.copy(file, place / file.name)
        point = self.ours.counterexample or self.theirs.counterexample
        (place / "counterexample.txt").write_text(f"{point}\n", encoding="ascii")
        write_json(place / "answers.json", {"ours": self.ours.as_dict(), "theirs": self.theirs.as_dict()})
        return place


_KEPT = (("answer", "word"), ("seconds", "seconds"), ("reason", "reason"))


@dataclass(frozen=True)
class Comparison:
    """What lingraft and another tool, `against`, said of the same properties.

    `folder` has everything; `contradictions` are the folders in it with what is needed to look into one.
    """

    against: str
    folder: Path
    properties: Properties
    pairs: list[Pair]
    contradictions: list[Path]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        figures: dict[str, Any] = {"against": self.against, **self.properties.as_dict()}
        figures["instances"] = [pair.as_dict() for pair in self.pairs]
        for side in ("ours", "theirs"):
            answers = [getattr(pair, side) for pair in self.pairs]
            words = [answer.word for answer in answers]
            figures[side] = {word: words.count(word) for word in sorted(set(words))}
            figures[f"{side}_seconds"] = round(sum(answer.seconds for answer in answers), 3)
        figures["contradictions"] = [str(place) for place in self.contradictions]
        return figures


def compare(
    model: nn.Module | Folder,
    against: str,
    *,
    tool: str | None = None,
    images: int | slice = 20,
    eps: Eps | None = None,
    clip: Clip = GIVEN,
    timeout: float = 60.0,
    form: Form | None = None,
    data: Any = None,
    out: str | Path | None = None,
) -> Comparison:
    """Let lingraft and another verifier decide the same images, one after the other with one thread each.

    `against` is marabou, neuralsat or alpha-beta-crown, and `tool` the command that runs it (default: searched). The
    first `images` of the test images, or a slice of them, are decided within `eps` and `timeout` seconds for each
    image. `form` is that of the network that it gets, see `export_onnx` (default: what it reads best). Network,
    properties and answers are kept in `out`: called again it goes on after a stop. `model` may be the folder of a run;
    then `eps`, `clip` (the range of values), `data` and `out` are by default those of the run, and compare/ in it.
    """
    run = kept_run(model, None)
    if out is None:
        if run is None:
            raise LingraftError("give out, the folder to keep network, properties and answers in.")
        out = run.path / "compare"
    folder = Path(out)
    radius, limits = radius_of(eps, run, data), Limits(timeout)
    other, command = find_tool(against, tool)
    form = form or other.form
    _, test = images_of(data, "test", run, clip=clip)
    plain, some = plain_network(model), test.take(images).pixels(slice(COMPARED_IMAGES))
    with holding(folder):
        their_network = NETWORK if form == "output" else f"onnx/network_{form}.onnx"
        networks: dict[str, Form] = {NETWORK: "output", their_network: form}
        for path, its_form in networks.items():
            export_onnx(plain, folder / path, input_shape=some.shape[1:], form=its_form, images=some)
        properties = write_properties(folder, plain, test, images, radius, timeout)
        if command is None:
            raise LingraftError(
                f"{other.name} was not found. Install it: {other.install}. The {properties.properties} instances for it"
                f" are listed in {folder / 'instances.csv'}: network {folder / their_network}, properties in"
                f" {folder / 'vnnlib'}."
            )
        entries, category = read_instances(folder), (folder if run is None else run.path).resolve().name
        ours = AnswerLog(folder / "lingraft", category, entries, {"version": __version__})
        decide_all(ours, limits, Place(1))
        their_entries = [replace(entry, network=their_network) for entry in entries]
        theirs = AnswerLog(folder / other.name, category, their_entries, {"command": command})
        runner = ToolRunner(other, command)
        complete(theirs, lambda numbers: runner.answers(their_entries, numbers), other.name)
        pairs = [Pair(entry, ours.answers[i], theirs.answers[i]) for i, entry in enumerate(entries)]
        saved = [pair.save(folder / "contradictions") for pair in pairs if pair.contradiction]
    return Comparison(other.name, folder, properties, pairs, saved)
