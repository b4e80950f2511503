"""The competition's score, ours beside that of tools whose answers are recorded: `lingraft vnncomp --against`.

VNN-COMP 2025 and 2026 give 10 points for a correct answer and −150 for a wrong one, nothing for time; the score of a
benchmark is in per cent of the most points that a tool has there.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.formats.benchmark import Entry

CORRECT, WRONG = 10, -150

#: What records call the two answers that count.
_WORDS = {"unsat": "unsat", "holds": "unsat", "sat": "sat", "violated": "sat"}
_HEADER = ["network", "property", "tool", "answer", "seconds"]


@dataclass(frozen=True)
class Record:
    """Answers of other tools: for each tool, "sat" or "unsat" by the number of the instance."""

    answers: Mapping[str, Mapping[int, str]]

    def compare(self, ours: Mapping[int, str], entries: Sequence[Entry]) -> dict[str, Any]:
        """Scores of all tools and the instances on which answers contradict each other, for JSON.

        A `sat` is right: ours has a counterexample that onnxruntime confirms, and those of a record were confirmed by
        the organizers. So an `unsat` is wrong where anybody has found one.
        """
        given = {"lingraft": ours, **self.answers}
        broken = {number for said in given.values() for number, word in said.items() if word == "sat"}
        scores = {tool: _score(said, broken) for tool, said in given.items()}
        best = max((score["points"] for score in scores.values()), default=0)
        for score in scores.values():
            score["percent"] = round(100 * max(score["points"], 0) / best, 1) if best > 0 else 0.0
        contradictions = []
        for number, entry in enumerate(entries):
            said = {tool: words[number] for tool, words in given.items() if number in words}
            if len(set(said.values())) > 1:
                contradictions.append({"network": entry.network, "property": entry.spec, **said})
        return {"scores": scores, "contradictions": contradictions}


def _score(said: Mapping[int, str], broken: set[int]) -> dict[str, Any]:
    wrong = sum(word == "unsat" and number in broken for number, word in said.items())
    words = list(said.values())
    return {
        "points": CORRECT * (len(words) - wrong) + WRONG * wrong,
        "unsat": words.count("unsat"),
        "sat": words.count("sat"),
        "wrong": wrong,
    }


def read_record(path: str | Path, entries: Sequence[Entry]) -> Record:
    """The answers of a file to these instances.

    Its lines are network, property, tool, answer, seconds below a line that says so; or, as in a results.csv of the
    competition, category, network, property, seconds to prepare, answer, seconds: then the tool is named by the folder.
    """
    path = Path(path)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [[field.strip() for field in row] for row in csv.reader(file) if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LingraftError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    headed = bool(rows) and rows[0] == _HEADER
    places = _places(entries)
    answers: dict[str, dict[int, str]] = {}
    for number, row in enumerate(rows[headed:], start=1 + headed):
        if len(row) != (5 if headed else 6):
            raise LingraftError(
                f"{path}, line {number}: expected {','.join(_HEADER)} below a line that says so, or the six fields of"
                f" a results.csv; found {len(row)} fields."
            )
        network, spec, tool, answer = row[:4] if headed else [row[1], row[2], path.resolve().parent.name, row[4]]
        place = next((places[key] for key in _keys(network, spec) if places.get(key) is not None), None)
        said = answers.setdefault(tool, {})
        word = _WORDS.get(answer.lower())
        if place is not None and word is not None:
            said[place] = word
    if not answers:
        raise LingraftError(f"{path} records no answers.")
    return Record(answers)


def _places(entries: Sequence[Entry]) -> dict[str, int | None]:
    """Numbers of instances by what they may be called; None for a name of several."""
    found: dict[str, int | None] = {}
    for number, entry in enumerate(entries):
        for key in _keys(entry.network, entry.spec):
            found[key] = None if key in found else number
    return found


def _keys(network: str, spec: str) -> list[str]:
    """As it is written, and as the competition names it without folders."""
    exact = ",".join(part.removeprefix("./").removesuffix(".gz") for part in (network, spec))
    return [exact, Entry(Path(), network, spec, 0.0).name]
