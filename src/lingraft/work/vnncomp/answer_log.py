"""Answers of one tool on a benchmark, kept so that a run that was stopped goes on where it was.

answers.jsonl     one line for each instance that was done, appended and flushed
results.csv       as in the competition: category, network, property, seconds to prepare, answer, seconds
NETWORK_PROPERTY.counterexample.gz    for each `sat`
"""

import csv
import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lingraft.exit_codes import EXIT_CODES
from lingraft.files import append_line, read_lines, replacing
from lingraft.formats.answer import Answer, Counterexample
from lingraft.formats.benchmark import Entry
from lingraft.work.vnncomp.score import Record

#: Answers that trying again would not change, unless there is more time.
_FINAL = ("unsat", "sat")


class AnswerLog:
    """The answers in `folder`; `about` is what else they depend on, such as the version of the tool."""

    def __init__(
        self,
        folder: Path,
        category: str,
        entries: Sequence[Entry],
        about: Mapping[str, Any],
        record: Record | None = None,
    ):
        self.folder, self.category, self.entries, self.about = folder, category, entries, dict(about)
        #: answers of other tools to compare with
        self.record = record
        self.path = folder / "answers.jsonl"
        self.answers: dict[int, Answer] = {}

    def resume(self) -> dict[int, Answer]:
        """Answers of earlier calls that still stand, by the number of the instance."""
        records: dict[str, list[dict[str, Any]]] = {}
        for record in read_lines(self.path):
            records.setdefault(str(record.get("digest")), []).append(record)
        for number, entry in enumerate(self.entries):
            usable = (self._usable(entry, record) for record in reversed(records.get(entry.digest(), [])))
            answer = next((answer for answer in usable if answer is not None), None)
            if answer is not None:
                self.answers[number] = answer
        self._write_results()
        return dict(self.answers)

    def keep(self, number: int, answer: Answer) -> None:
        """Add one answer; its counterexample first, so that no record is without it."""
        entry = self.entries[number]
        self.answers[number] = answer_of(answer.as_dict())  # as it is read again: its seconds are rounded
        if answer.counterexample is not None:
            with replacing(self.folder / f"{entry.name}.counterexample.gz") as part, gzip.open(part, "wt") as file:
                file.write(f"{answer.counterexample}\n")
        about = {"digest": entry.digest(), "timeout": entry.timeout, **self.about}
        append_line(self.path, {"network": entry.network, "property": entry.spec, **about, **answer.as_dict()})
        self._write_results()

    def figures(self) -> dict[str, Any]:
        """What is known when all instances are answered: counts, seconds, and which are unknown or an error.

        With a record, the scores and contradictions as well.
        """
        answers = [self.answers[number] for number in range(len(self.entries))]
        counts = Counter(answer.word for answer in answers)
        decided = {number: answer.word for number, answer in enumerate(answers) if answer.word in _FINAL}
        compared = {} if self.record is None else self.record.compare(decided, self.entries)
        return {
            "results": str(self.folder / "results.csv"),
            "instances": len(answers),
            "counts": {word: counts[word] for word in (*EXIT_CODES, "error")},
            "seconds": round(sum(answer.seconds for answer in answers), 3),
            "seconds_decided": round(sum(answer.seconds for answer in answers if answer.word in _FINAL), 3),
            "unknown": self._listed("unknown"),
            "errors": self._listed("error"),
            **compared,
        }

    def _listed(self, word: str) -> list[dict[str, Any]]:
        return [
            {"network": entry.network, "property": entry.spec, "reason": self.answers[number].reason}
            for number, entry in enumerate(self.entries)
            if self.answers[number].word == word
        ]

    def _usable(self, entry: Entry, record: Mapping[str, Any]) -> Answer | None:
        if any(record.get(name) != value for name, value in self.about.items()):
            return None
        try:
            answer = answer_of(record)
            enough = float(record["timeout"]) >= entry.timeout
        except (KeyError, TypeError, ValueError):
            return None  # damaged: find it again
        if answer.word in _FINAL:
            return answer if answer.seconds <= entry.timeout * 1.02 + 1 else None
        # an error or a crash is worth another try, and so is everything with more time
        return answer if enough and answer.word in ("unknown", "timeout") else None

    def _write_results(self) -> None:
        with replacing(self.folder / "results.csv") as part, open(part, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for number in sorted(self.answers):
                entry, answer = self.entries[number], self.answers[number]
                files = (entry.networks_from_here, str(entry.folder / entry.spec))
                writer.writerow([self.category, *files, "0", answer.word, f"{answer.seconds:.3f}"])


def answer_of(record: Mapping[str, Any]) -> Answer:
    """The answer that `Answer.as_dict` made a record of."""
    point = record["counterexample"]
    return Answer(
        str(record["answer"]),
        float(record["seconds"]),
        None if point is None else Counterexample(np.array(point["x"], float), np.array(point["y"], np.float32)),
        record["reason"],
        record["stage"],
        int(record["domains"]),
    )
