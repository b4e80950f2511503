"""Processes that make and judge mutations; one that dies or hangs is a finding, and is replaced."""

import multiprocessing as mp
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from cases import Case
from judge import Judge, Outcome
from plants import PLANTS

#: Mutations that a process takes at once, and seconds after which it hangs: the truth takes its time, too.
CHUNK, HANGS = 100, 300.0


class Crew:
    """Workers with the same cases; `only` restricts the kinds of changes, `plant` is a bug for the checker."""

    def __init__(self, cases: list[Case], seed: int, folder: Path, only: str, plant: str | None):
        self.cases, self.seed, self.folder, self.only, self.plant = cases, seed, folder, only, plant
        self.context = mp.get_context("fork")

    def outcomes(self, numbers: range, workers: int) -> Iterator[tuple[int, Outcome]]:
        """The outcome of every number, in any order."""
        left = [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)][::-1]
        busy = {}
        while left or busy:
            while left and len(busy) < workers:
                worker = _Worker(self, left.pop())
                busy[worker.pipe] = worker
            for pipe in wait(list(busy), timeout=1.0):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    message = worker.pipe.recv()
                except EOFError:  # it died
                    yield worker.number, self._lost(worker, "crash", "the process died")
                    message = None
                if isinstance(message, tuple):
                    worker.seen(message[0])
                    yield message
                    continue
                busy.pop(worker.pipe)
                worker.end()
                if worker.rest:
                    left.append(worker.rest)
            for worker in [w for w in busy.values() if time.monotonic() - w.heard > HANGS]:
                yield worker.number, self._lost(worker, "slow", "the process hung")
                busy.pop(worker.pipe)
                worker.end()
                if worker.rest:
                    left.append(worker.rest)

    def _lost(self, worker: "_Worker", verdict: str, reason: str) -> Outcome:
        number = worker.number
        worker.seen(number)
        kind, change = self.judge().kind_of(number), f"--first {number} --count 1"
        if worker.checking.value:
            return Outcome(kind, change, verdict, reason)
        return Outcome(kind, change, "refused elsewhere", f"{reason} in onnxruntime")

    def judge(self) -> Judge:
        """What a worker works with."""
        return Judge(self.cases, self.seed, self.folder, self.only)


class _Worker:
    """One process with some numbers."""

    def __init__(self, crew: Crew, numbers: range):
        self.rest, self.heard = numbers, time.monotonic()
        self.pipe, other = crew.context.Pipe(duplex=False)
        #: whether it is the checker that runs now, and not onnxruntime or a search for the truth
        self.checking = crew.context.Value("b", 0, lock=False)
        self.process = crew.context.Process(target=_work, args=(crew, numbers, other, self.checking), daemon=True)
        self.process.start()
        other.close()

    @property
    def number(self) -> int:
        """The one that it is at."""
        return self.rest[0]

    def seen(self, number: int) -> None:
        """A number is done."""
        self.rest, self.heard = self.rest[1:], time.monotonic()
        assert number == self.rest.start - 1

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(crew: Crew, numbers: range, pipe: Connection, checking: Any) -> None:
    if crew.plant:
        PLANTS[crew.plant]()
    judge = crew.judge()
    judge.meter.checking = checking
    for number in numbers:
        outcome: Any = judge.outcome(number)
        if not outcome.bad and outcome.verdict != "refused elsewhere":
            outcome.onnx = outcome.certificate = b""
        pipe.send((number, outcome))
    pipe.send(None)
