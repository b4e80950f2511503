"""Two verifiers on the same instances: who knew what, after how long, and whether they contradict each other."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.files import write_json
from lingraft.formats.answer import Answer
from lingraft.formats.benchmark import Entry


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
        found = self.ours.counterexample or self.theirs.counterexample
        (place / "counterexample.txt").write_text(f"{found}\n", encoding="ascii")
        write_json(place / "answers.json", {"ours": self.ours.as_dict(), "theirs": self.theirs.as_dict()})
        return place


_KEPT = (("answer", "word"), ("seconds", "seconds"), ("reason", "reason"))


def pairs(entries: Sequence[Entry], ours: Mapping[int, Answer], theirs: Mapping[int, Answer]) -> list[Pair]:
    """The answers side by side, for instances that both were asked about."""
    return [Pair(entry, ours[i], theirs[i]) for i, entry in enumerate(entries) if i in ours and i in theirs]
