"""Problems spread over workers, wherever these are: who does what next, and what happens when one dies or overruns.

A worker that dies costs its problem one retry; one that overruns its time is ended. Whatever happens here, no worker
stays behind.
"""

import pickle
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lingraft.errors import LingraftError
from lingraft.verification.verifier import Problem, Result

#: An answer may come this much later than the limit: a share of it, and seconds. Then the worker is ended.
LATE_SHARE, LATE_SECONDS = 0.02, 0.9

#: Tries at one problem whose worker died, and workers in a row that do not even start before we give up.
TRIES, FAILED_STARTS = 2, 3

#: Seconds that a worker may take to load torch and the network.
START_SECONDS = 300.0

#: number of a problem → the problem, and the seed of its attacks
Ask = Callable[[int], tuple[Problem, int]]


@dataclass
class Task:
    """The number of a problem, and how often it was tried in vain."""

    number: int
    tries: int = 0


class Worker(ABC):
    """One worker, and what it is doing: it starts, and is then idle or busy with a task."""

    def __init__(self) -> None:
        self.idle = False
        self.task: Task | None = None
        self.begun = time.monotonic()
        self.deadline = self.begun + START_SECONDS

    def begin(self, task: Task, question: tuple[Problem, int], seconds: float) -> None:
        """Send a problem, to be answered within so many seconds."""
        message = pickle.dumps(question)
        self.task, self.idle = task, False
        self.begun = time.monotonic()
        self.deadline = self.begun + seconds
        self.send(message)

    @abstractmethod
    def send(self, question: bytes) -> None:
        """Send a pickled problem; if the worker is dead, `receive` will find that."""

    @abstractmethod
    def receive(self) -> bytes | None:
        """What the worker sent, None if it died, nothing (b"") if neither."""

    @abstractmethod
    def advance(self, message: bytes) -> None:
        """Take a message of a worker that has no task: one more step towards being idle."""

    @abstractmethod
    def end(self) -> str:
        """End the worker and what it does; says how it ended."""


SomeWorker = TypeVar("SomeWorker", bound=Worker)


class Staff(ABC, Generic[SomeWorker]):
    """Where workers come from."""

    #: what to do if they do not start
    instead: str

    @property
    @abstractmethod
    def size(self) -> int:
        """How many there may be now."""

    @abstractmethod
    def hire(self) -> SomeWorker:
        """One more, which starts now."""

    @abstractmethod
    def with_news(self, workers: Sequence[SomeWorker], seconds: float) -> Sequence[SomeWorker]:
        """Those of the workers that sent something or died; waits for that, so many seconds at most."""


class Crew(Generic[SomeWorker]):
    """Workers for one network, with `timeout` seconds for each problem."""

    def __init__(self, staff: Staff[SomeWorker], timeout: float):
        self.staff, self.timeout = staff, timeout
        self.workers: list[SomeWorker] = []
        #: how those in a row ended that did not start
        self.failed_starts: list[str] = []

    def run(self, numbers: Iterable[int], ask: Ask) -> Iterator[tuple[int, Result]]:
        """The number and the result of every problem, as they finish."""
        left = deque(Task(number) for number in numbers)
        try:
            while left or any(worker.task for worker in self.workers):
                self._hire(len(left))
                for worker in self.workers:
                    if worker.idle and left:
                        task = left.popleft()
                        worker.begin(task, ask(task.number), self._patience)
                for worker in self._with_news():
                    yield from self._hear(worker, left)
        finally:
            for worker in self.workers:
                worker.end()
            self.workers.clear()

    @property
    def _patience(self) -> float:
        return self.timeout * (1 + LATE_SHARE) + LATE_SECONDS

    def _hire(self, waiting: int) -> None:
        """As many workers as there is work for; those that are busy already have theirs."""
        busy = sum(worker.task is not None for worker in self.workers)
        if len(self.failed_starts) >= FAILED_STARTS:
            if not any(worker.task or worker.idle for worker in self.workers):
                raise LingraftError(
                    f"the processes to verify in do not start (the last one {self.failed_starts[-1]})."
                    f" {self.staff.instead}"
                )
            return  # those that work go on; the next answer of theirs is a reason to try again
        while len(self.workers) < min(self.staff.size, busy + waiting):
            self.workers.append(self.staff.hire())

    def _with_news(self) -> list[SomeWorker]:
        """Workers that sent something, died, or are overdue; waits until there is one."""
        watched = [worker for worker in self.workers if not worker.idle]
        soonest = min(worker.deadline for worker in watched) - time.monotonic()
        ready = self.staff.with_news(watched, max(soonest, 0))
        now = time.monotonic()
        return [worker for worker in watched if worker in ready or worker.deadline <= now]

    def _hear(self, worker: SomeWorker, left: deque[Task]) -> Iterator[tuple[int, Result]]:
        message = worker.receive()
        if message and worker.task is not None:
            task, worker.task, worker.idle = worker.task, None, True
            self.failed_starts.clear()
            yield task.number, pickle.loads(message)
        elif message:
            worker.advance(message)
            if worker.idle:
                self.failed_starts.clear()
        else:  # died (None) or overdue (nothing)
            how = worker.end()
            self.workers.remove(worker)
            if worker.task is None:
                self.failed_starts.append(how)
                return
            task, seconds = worker.task, time.monotonic() - worker.begun
            task.tries += 1
            if message is not None:
                yield task.number, Result("unknown", "", "time", seconds=seconds)
            elif task.tries < TRIES:
                left.appendleft(task)
            else:
                error = f"the process that verified it {how}, {TRIES} times"
                yield task.number, Result("unknown", "", "crashed", seconds=seconds, error=error)
