"""Going through the instances of a benchmark, several at a time."""

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from lingraft.formats.answer import Answer
from lingraft.formats.benchmark import Entry
from lingraft.pool.images import MEMORY_SHARE
from lingraft.pool.place import Place
from lingraft.progress import progress
from lingraft.solver.budget import free_memory, usable_cores
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.answer_log import AnswerLog
from lingraft.work.vnncomp.instance_process import Decider, DeciderProcess


class Asker(Protocol):
    """Something that answers one instance at a time."""

    def ask(self, onnx: Path, vnnlib: Path, timeout: float) -> Answer:
        """The answer within about so many seconds."""

    def close(self) -> None:
        """End whatever it started."""


def run_instances(
    entries: Sequence[Entry], numbers: Sequence[int], askers: Sequence[Callable[[], Asker]]
) -> Iterator[tuple[int, Answer]]:
    """The number and the answer of the instances `numbers`, as they finish; `askers` make those who share the work."""
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        left.put(number)
    made = [make() for make in askers[: len(numbers)]]
    done: queue.SimpleQueue[tuple[int, Answer] | BaseException] = queue.SimpleQueue()

    def work(asker: Asker) -> None:
        try:
            while True:
                number = left.get_nowait()
                entry = entries[number]
                done.put((number, asker.ask(entry.onnx, entry.vnnlib, entry.timeout)))
        except queue.Empty:
            pass
        except BaseException as error:  # it is raised again where somebody can see it
            done.put(error)

    threads = [threading.Thread(target=work, args=(asker,), daemon=True) for asker in made]
    try:
        for thread in threads:
            thread.start()
        for _ in numbers:
            item = done.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        with suppress(queue.Empty):  # after a stop nobody begins another one
            while True:
                left.get_nowait()
        for asker in made:
            asker.close()


def decide_all(log: AnswerLog, limits: Limits, workers: int | None = None) -> None:
    """Lingraft's own answers on all instances of a log that it does not have yet; `limits.timeout` is not used."""
    workers = Place(workers).workers
    workers = usable_cores() if workers is None else workers
    memory = (MEMORY_SHARE * free_memory() if limits.memory is None else limits.memory) / max(1, workers)
    make = partial(DeciderProcess if workers else Decider, memory, limits.double, limits.seed)
    complete(log, [make] * max(1, workers), "lingraft")


def complete(log: AnswerLog, askers: Sequence[Callable[[], Asker]], what: str) -> None:
    """Ask for the answers that are not in the log yet, and keep each as it comes."""
    counts: Counter[str] = Counter(answer.word for answer in log.resume().values())
    with progress(what, len(log.entries)) as advance:
        advance(len(log.answers), _tally(counts))
        left = [number for number in range(len(log.entries)) if number not in log.answers]
        for number, answer in run_instances(log.entries, left, askers):
            log.keep(number, answer)
            counts[answer.word] += 1
            advance(1, _tally(counts))


def _tally(counts: Counter[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in sorted(counts.items()))
