"""Answers kept beside a benchmark."""

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lingraft.formats.answer import Answer, Counterexample, read_counterexample
from lingraft.formats.benchmark import Entry, read_instances
from lingraft.work.vnncomp.answer_log import AnswerLog
from lingraft.work.vnncomp.run_benchmark import complete


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "a.b.onnx").write_bytes(b"network")
    for name in ("p.vnnlib", "q.vnnlib", "r.vnnlib"):
        (tmp_path / name).write_bytes(name.encode())
    lines = [f"onnx/a.b.onnx,{name}.vnnlib,{seconds}\n" for name, seconds in (("p", 10), ("q", 2.5), ("r", 10))]
    (tmp_path / "instances.csv").write_text("".join(lines))
    return tmp_path


def log_of(folder: Path, entries: list[Entry], **about: object) -> AnswerLog:
    return AnswerLog(folder / "results", "bench", entries, about)


FOUND = Counterexample(np.array([0.1, -3.0]), np.array([1.5], np.float32))
ANSWERS = [Answer("unsat", 1.25, stage="crown"), Answer("sat", 0.5, FOUND), Answer("timeout", 10.0, reason="time")]


def test_answers_are_kept_and_found_again(folder) -> None:
    entries = read_instances(folder)
    log = log_of(folder, entries)
    assert log.resume() == {}
    for number in (2, 0, 1):
        log.keep(number, ANSWERS[number])
    with open(folder / "results" / "results.csv", newline="") as file:
        rows = list(csv.reader(file))
    network = str(folder / "onnx" / "a.b.onnx")
    assert rows == [
        ["bench", network, str(folder / "p.vnnlib"), "0", "unsat", "1.250"],
        ["bench", network, str(folder / "q.vnnlib"), "0", "sat", "0.500"],
        ["bench", network, str(folder / "r.vnnlib"), "0", "timeout", "10.000"],
    ]
    with gzip.open(folder / "results" / "a.b_q.counterexample.gz", "rt") as packed:
        text = packed.read()
    assert read_counterexample(text, 2).tolist() == [0.1, -3.0]
    again = log_of(folder, entries).resume()
    assert [again[i].as_dict() for i in range(3)] == [answer.as_dict() for answer in ANSWERS]


def test_figures_are_the_same_when_they_are_read_again(folder) -> None:
    """Seconds are kept rounded: the sum of these is 0.999 as measured and 1.000 as kept."""
    entries = read_instances(folder)
    log = log_of(folder, entries)
    for number in range(3):
        log.keep(number, Answer("unsat", 0.33316))
    again = log_of(folder, entries)
    again.resume()
    assert again.figures() == log.figures()


def test_what_is_not_used_again(folder) -> None:
    entries = read_instances(folder)
    log = log_of(folder, entries, seed=0)
    for number, answer in enumerate(ANSWERS):
        log.keep(number, answer)

    def resumed(*changed: Entry, **about: object) -> list[int]:
        return sorted(log_of(folder, list(changed) or entries, **{"seed": 0, **about}).resume())

    assert resumed() == [0, 1, 2]
    assert resumed(seed=1) == []
    assert resumed(*(replace(entry, timeout=20) for entry in entries)) == [0, 1], "more time may help the last one"
    assert resumed(*(replace(entry, timeout=0.1) for entry in entries)) == [1, 2], "not decided within this limit"
    (folder / "p.vnnlib").write_bytes(b"another property")
    assert resumed() == [1, 2]
    (folder / "onnx" / "a.b.onnx").write_bytes(b"another network")
    assert resumed() == []


def test_errors_are_tried_again_and_damaged_lines_left_out(folder) -> None:
    entries = read_instances(folder)
    log = log_of(folder, entries)
    log.keep(0, Answer("error", 1.0, reason="killed"))
    log.keep(1, Answer("unsat", 1.0))
    path = folder / "results" / "answers.jsonl"
    damaged = json.loads(path.read_text().splitlines()[1])
    del damaged["seconds"]
    path.write_text(path.read_text() + json.dumps(damaged) + '\n{"answer": "uns')
    assert list(log_of(folder, entries).resume()) == [1]


def test_after_a_stop_nothing_else_is_begun_and_another_call_goes_on(folder) -> None:
    log, asked = log_of(folder, read_instances(folder)), []

    def stopped(numbers: list[int]) -> Iterator[tuple[int, Answer]]:
        for number in numbers:
            asked.append(number)
            if number == 1:
                raise KeyboardInterrupt
            yield number, ANSWERS[number]

    with pytest.raises(KeyboardInterrupt):
        complete(log, stopped, "stopped")
    assert asked == [0, 1]
    again = log_of(folder, read_instances(folder))
    complete(again, lambda numbers: [(number, ANSWERS[number]) for number in numbers if number], "again")
    assert [again.answers[i].word for i in range(3)] == ["unsat", "sat", "timeout"]
