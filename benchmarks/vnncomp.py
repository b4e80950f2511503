"""Families of the verification competition: what is read, what is decided, and what others recorded.

Each family is a folder with `instances.csv`, networks and properties, and maybe `peers.csv` with recorded answers
(network, property, tool, answer, seconds). One instance after the other in this process, one thread; seconds are
CPU-seconds of it, reading included, undecided ones too. Answers are kept in OUT, so a run that was stopped goes on. A
contradiction with a record makes the exit code 1. With --limits another table says how well limits were kept: seconds
of the clock, and of this process, which are fewer where the core is shared. With --processor the limits themselves are
seconds of this process, for a core that other programs use.

    python benchmarks/vnncomp.py DIR [--families acasxu_2023 …] [--timeout S] [--out OUT] [--limits] [--processor]
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from lingraft.formats.answer import Answer
from lingraft.formats.benchmark import read_instances
from lingraft.solver.budget import usable_memory
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.answer_log import AnswerLog
from lingraft.work.vnncomp.instance_work import DecideInstances
from lingraft.work.vnncomp.run_benchmark import complete
from lingraft.work.vnncomp.score import read_record

COLUMNS = ("family", "read", "unsat", "sat", "undecided", "seconds", "recorded (unsat + sat)", "contradictions")


#: (family, property, answer, limit, seconds of the clock, seconds of the process)
Used = tuple[str, str, str, float, float, float]


def measure(folder: Path, out: Path, timeout: float, used: list[Used]) -> dict[str, Any]:
    """The figures of one family, each instance with at most `timeout` seconds; what it used is added to `used`."""
    entries = [replace(entry, timeout=min(entry.timeout, timeout)) for entry in read_instances(folder)]
    peers = folder / "peers.csv"
    # a record without answers is a line with names only
    known = peers.exists() and len(peers.read_text(encoding="utf-8").splitlines()) > 1
    log = AnswerLog(out, folder.name, entries, {}, read_record(peers, entries) if known else None)
    work = DecideInstances(Limits())
    work.prepare(usable_memory(None))

    def answers(numbers: list[int]) -> Iterator[tuple[int, Answer]]:
        for number in numbers:
            entry, begun, started = entries[number], time.process_time(), time.perf_counter()
            answer = work.answer((entry.files, entry.vnnlib), entry.timeout)
            clock, answer.seconds = time.perf_counter() - started, time.process_time() - begun
            used.append((folder.name, entry.vnnlib.name, answer.word, entry.timeout, clock, answer.seconds))
            yield number, answer

    complete(log, answers, folder.name)
    return log.figures()


def row(name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    """The line of the table about a family."""
    counts, scores = figures["counts"], figures.get("scores", {})
    read = figures["instances"] - counts["error"]
    others = [f"{tool} {score['unsat']} + {score['sat']}" for tool, score in scores.items() if tool != "lingraft"]
    return (
        name,
        f"{read} of {figures['instances']}",
        str(counts["unsat"]),
        str(counts["sat"]),
        str(counts["unknown"] + counts["timeout"]),
        f"{figures['seconds']:.1f}",
        ", ".join(others) or "none",
        str(len(figures.get("contradictions", []))),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--families", nargs="+", help="default: all")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for an instance at most")
    parser.add_argument("--out", type=Path, default=Path("results/vnncomp"))
    parser.add_argument("--limits", action="store_true", help="print what every instance used of its limit")
    parser.add_argument("--processor", action="store_true", help="count limits in seconds of the processor")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.processor:
        time.monotonic = time.process_time  # what all of lingraft looks at for its limits
    names = options.families or sorted(path.parent.name for path in options.folder.glob("*/instances.csv"))
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    contradictions, errors = 0, []
    used: list[Used] = []
    for name in names:
        figures = measure(options.folder / name, options.out / name, options.timeout, used)
        contradictions += len(figures.get("contradictions", []))
        errors += [f"{name}: {item['property']}: {item['reason']}" for item in figures["errors"]]
        print(f"| {' | '.join(row(name, figures))} |", flush=True)
    if options.limits:
        print("\n| family | property | answer | limit | clock | process |\n| --- | --- | --- | --- | --- | --- |")
        for family, vnnlib, word, *seconds in used:
            print(f"| {family} | {vnnlib} | {word} | {' | '.join(f'{number:.1f}' for number in seconds)} |")
    for error in errors:
        print(f"not read: {error}", file=sys.stderr)
    sys.exit(1 if contradictions else 0)


if __name__ == "__main__":
    main()
