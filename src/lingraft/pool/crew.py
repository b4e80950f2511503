"""Problems spread over workers, wherever these are: who does what next, and what happens when one dies or overruns.

A worker that dies costs its problem one retry; one that overruns its time is ended. When there are more workers than
problems left, a problem whose branch and bound takes long is divided into independent parts. Whatever happens here, no
worker stays behind.
"""

import math
import pickle
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lingraft.errors import LingraftError
from lingraft.pool.answerer import Divided
from lingraft.solver.division import Division
from lingraft.solver.verifier import Problem, Result

#: An answer may come this much later than the limit: a share of it, and seconds. Then the worker is ended.
LATE_SHARE, LATE_SECONDS = 0.02, 0.9

#: Tries at one problem whose worker died, and workers in a row that do not even start before we give up.
TRIES, FAILED_STARTS = 2, 3

#: Seconds that a worker may take to load torch and the network.
START_SECONDS = 300.0

#: A problem, or a part of one, is not divided before it took this many seconds: a division costs tenths of one.
DIVIDE_AFTER = 2.0

#: number of a problem → the problem, and the seed of its attacks
Ask = Callable[[int], tuple[Problem, int]]


@dataclass
class Task:
    """The number of a problem, and how often it was tried in vain; `spent` seconds of its `limit` are gone already.

    A `part` is one of a problem that was divided, with what is common to all of them, as the staff shares it.
    """

    number: int
    limit: float
    spent: float = 0.0
    part: tuple[bytes, Any] | None = None
    tries: int = 0

    @property
    def seconds(self) -> float:
        """What it may take."""
        return max(0.0, self.limit - self.spent)

    @property
    def patience(self) -> float:
        """What it may take before its worker is ended."""
        return self.seconds + self.limit * LATE_SHARE + LATE_SECONDS


class Worker(ABC):
    """One worker, and what it is doing: it starts, and is then idle or busy with a task."""

    def __init__(self) -> None:
        self.idle = False
        self.task: Task | None = None
        #: parts that its task was asked to be divided into
        self.asked_for = 0
        self.begun = time.monotonic()
        self.deadline = self.begun + START_SECONDS

    def begin(self, task: Task, ask: Ask) -> None:
        """Send a task."""
        question, common = task.part or (_packed(*ask(task.number)), None)
        self.task, self.idle, self.asked_for = task, False, 0
        self.begun = time.monotonic()
        self.deadline = self.begun + task.patience
        self.send(question, common, task.seconds)

    @abstractmethod
    def send(self, question: bytes, common: Any, seconds: float) -> None:
        """Send a pickled question to be answered within so many seconds; a dead worker is for `receive` to find."""

    @abstractmethod
    def divide(self, parts: int) -> None:
        """Ask for the task to be divided, which it may be or not."""

    @abstractmethod
    def receive(self) -> bytes | None:
        """What the worker sent, None if it died, nothing (b"") if neither."""

    @abstractmethod
    def advance(self, message: bytes) -> None:
        """Take a message of a worker that has no task: one more step towards being idle."""

    @abstractmethod
    def end(self) -> str:
        """End the worker and what it does; says how it ended."""


def _packed(problem: Problem, seed: int) -> bytes:
    """On the CPU: the worker has its own device."""
    return pickle.dumps((problem.to("cpu"), seed))


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
    def share(self, common: bytes) -> Any:
        """What to give to `Worker.send` for bytes that go to several workers."""

    @abstractmethod
    def with_news(self, workers: Sequence[SomeWorker], seconds: float) -> Sequence[SomeWorker]:
        """Those of the workers that sent something or died; waits for that, so many seconds at most."""


class Crew(Generic[SomeWorker]):
    """Workers for one network, with `timeout` seconds for each problem."""

    def __init__(self, staff: Staff[SomeWorker], timeout: float):
        self.staff, self.timeout = staff, timeout
        self.workers: list[SomeWorker] = []
        self.left: deque[Task] = deque()
        #: by number of the problem
        self.divisions: dict[int, Division] = {}
        #: how those in a row ended that did not start
        self.failed_starts: list[str] = []

    def run(self, numbers: Iterable[int], ask: Ask) -> Iterator[tuple[int, Result]]:
        """The number and the result of every problem, as they finish."""
        self.left.extend(Task(number, self.timeout) for number in numbers)
        try:
            while self.left or self._busy():
                self._hire()
                for worker in self.workers:
                    if worker.idle and self.left:
                        worker.begin(self.left.popleft(), ask)
                self._divide()
                for worker in self._with_news():
                    if worker in self.workers:
                        yield from self._hear(worker)
        finally:
            for worker in self.workers:
                worker.end()
            self.workers.clear()

    def _busy(self) -> list[SomeWorker]:
        return [worker for worker in self.workers if worker.task is not None]

    def _hire(self) -> None:
        """As many workers as there is work for; those that are busy already have theirs."""
        if len(self.failed_starts) >= FAILED_STARTS:
            if not any(worker.task or worker.idle for worker in self.workers):
                raise LingraftError(
                    f"the processes to verify in do not start (the last one {self.failed_starts[-1]})."
                    f" {self.staff.instead}"
                )
            return  # those that work go on; the next answer of theirs is a reason to try again
        wanted = len(self._busy()) + len(self.left)
        while len(self.workers) < wanted and len(self.workers) < self.staff.size:
            self.workers.append(self.staff.hire())

    def _divisible(self) -> list[SomeWorker]:
        """Workers whose tasks should be divided for those that have nothing to do, the longest at work first."""
        busy = self._busy()
        promised = sum(worker.asked_for - 1 for worker in busy if worker.asked_for)
        if self.left or not busy or len(busy) + promised >= self.staff.size:
            return []
        return sorted((worker for worker in busy if not worker.asked_for), key=lambda worker: worker.begun)

    def _divide(self) -> None:
        """Have tasks divided if there would be nothing to do for some workers."""
        old_enough = time.monotonic() - DIVIDE_AFTER
        candidates = [worker for worker in self._divisible() if worker.begun <= old_enough]
        for number, worker in enumerate(candidates):
            busy = self._busy()
            free = self.staff.size - len(busy) - sum(other.asked_for - 1 for other in busy if other.asked_for)
            worker.asked_for = 1 + math.ceil(free / (len(candidates) - number))
            worker.divide(worker.asked_for)

    def _with_news(self) -> list[SomeWorker]:
        """Workers that sent something, died, or are overdue; waits until there is one, or a task can be divided."""
        watched = [worker for worker in self.workers if not worker.idle]
        soonest = min(worker.deadline for worker in watched)
        soonest = min([soonest, *[worker.begun + DIVIDE_AFTER for worker in self._divisible()]])
        ready = self.staff.with_news(watched, max(soonest - time.monotonic(), 0))
        now = time.monotonic()
        return [worker for worker in watched if worker in ready or worker.deadline <= now]

    def _hear(self, worker: SomeWorker) -> Iterator[tuple[int, Result]]:
        message = worker.receive()
        if message and worker.task is not None:
            task, worker.task, worker.idle = worker.task, None, True
            self.failed_starts.clear()
            yield from self._settle(task, pickle.loads(message))
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
                yield from self._settle(task, Result("unknown", "", "time", seconds=seconds))
            elif task.tries < TRIES:
                self.left.appendleft(task)
            else:
                error = f"the process that verified it {how}, {TRIES} times"
                yield from self._settle(task, Result("unknown", "", "crashed", seconds=seconds, error=error))

    def _settle(self, task: Task, answer: Result | Divided) -> Iterator[tuple[int, Result]]:
        """A task was answered: with its result, or by dividing it."""
        division = self.divisions.get(task.number)
        if isinstance(answer, Divided):
            spent = task.spent + answer.result.seconds
            common = self.staff.share(answer.common)
            self.left.extend(Task(task.number, task.limit, spent, (part, common)) for part in answer.parts)
            self.divisions[task.number] = division = division or Division()
            division.add(answer.result, spent, len(answer.parts))
        elif division is None:
            yield task.number, answer
        else:
            division.add(answer, task.spent + answer.seconds)
            if division.done:
                self._drop(task.number)
                yield task.number, division.result

    def _drop(self, number: int) -> None:
        """Nothing more is to be done for a problem in parts."""
        del self.divisions[number]
        self.left = deque(task for task in self.left if task.number != number)
        for worker in self._busy():
            if worker.task is not None and worker.task.number == number:
                worker.end()
                self.workers.remove(worker)
