"""All instances of a benchmark: `lingraft vnncomp`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from lingraft.formats.answer import Answer
from lingraft.formats.benchmark import read_instances
from lingraft.formats.network_files import NetworkFiles
from lingraft.pool.opening import open_pool
from lingraft.pool.place import Place
from lingraft.progress import progress
from lingraft.runs.holding import holding
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.answer_log import AnswerLog
from lingraft.work.vnncomp.instance_work import DecideInstances
from lingraft.work.vnncomp.score import read_record


def benchmark(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    against: str | Path | None = None,
    timeout: float | None = None,
    workers: int | None = None,
    memory: float | None = None,
    double: bool = False,
    seed: int = 0,
) -> AnswerLog:
    """Decide all instances of the VNN-COMP benchmark in `folder`, and keep the answers in `out` (`folder`/results).

    `timeout` is in seconds for each instance (default: those of instances.csv). `workers` processes share the
    instances, one thread each (default: one for each core; 0: this process), and `memory` bytes. Called again it goes
    on after a stop, and tries again what more time may decide. An instance that cannot be read is an "error". With
    `against`, a file with answers of other tools (`read_record`), the figures have the competition's scores.
    """
    folder = Path(folder)
    limits, place = Limits(1.0 if timeout is None else timeout, memory, double, seed), Place(workers)
    entries = read_instances(folder)
    if timeout is not None:
        entries = [replace(entry, timeout=timeout) for entry in entries]
    results = folder / "results" if out is None else Path(out)
    record = None if against is None else read_record(against, entries)
    log = AnswerLog(results, folder.resolve().name, entries, {"double": double, "seed": seed}, record)
    with holding(log.folder):
        decide_all(log, limits, place)
    return log


def decide_all(log: AnswerLog, limits: Limits, place: Place) -> None:
    """Lingraft's own answers on all instances of a log that it does not have yet; `limits.timeout` is not used."""

    def files(number: int) -> tuple[NetworkFiles, Path]:
        return log.entries[number].files, log.entries[number].vnnlib

    def answers(numbers: list[int]) -> Iterator[tuple[int, Answer]]:
        with open_pool(DecideInstances(limits), place, limits.memory) as pool:
            for number in numbers:
                pool.add(number, partial(files, number), log.entries[number].timeout)
            yield from pool.answers()

    complete(log, answers, "lingraft")


def complete(log: AnswerLog, answers: Callable[[list[int]], Iterable[tuple[int, Answer]]], what: str) -> None:
    """Ask for the answers that are not in the log yet, by their numbers, and keep each as it comes."""
    counts: Counter[str] = Counter(answer.word for answer in log.resume().values())
    with progress(what, len(log.entries)) as advance:
        advance(len(log.answers), _tally(counts))
        for number, answer in answers([number for number in range(len(log.entries)) if number not in log.answers]):
            log.keep(number, answer)
            counts[answer.word] += 1
            advance(1, _tally(counts))


def _tally(counts: Counter[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in sorted(counts.items()))
