"""A worker as the pool sees it, and where workers come from: processes of this machine, or actors of a Ray cluster."""

import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lingraft.pool.work import Work

#: An answer may come this much later than the limit: a share of it, and seconds. Then the worker is ended.
LATE_SHARE, LATE_SECONDS = 0.02, 0.9

#: Seconds that a worker may take to load its libraries and to prepare its work.
START_SECONDS = 300.0


@dataclass
class Task:
    """A question by its name, and how often it was tried in vain; `spent` seconds of its `limit` are gone already.

    `ask` gives the question when there is a worker for it. A `part` is one of a question that was divided, with what
    is common to all of them, as `Workers.share` gives it.
    """

    name: Any
    ask: Callable[[], Any]
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
        #: parts that its task was asked to be divided into, 0 if it was not
        self.wanted_parts = 0
        #: where it is with its task, as far as it told
        self.stage = ""
        self.begun = time.monotonic()
        self.deadline = self.begun + START_SECONDS

    def begin(self, task: Task) -> None:
        """Send a task."""
        question, common = task.part or (pickle.dumps(task.ask()), None)
        self.task, self.idle, self.wanted_parts, self.stage = task, False, 0, ""
        self.begun = time.monotonic()
        self.deadline = self.begun + task.patience
        self.send(question, common, task.seconds)

    @abstractmethod
    def send(self, question: bytes, common: Any, seconds: float) -> None:
        """Send a pickled question with its time limit; that the worker is dead is for `receive` to find out."""

    @abstractmethod
    def divide(self, parts: int) -> None:
        """Ask for the task to be divided, which it may be or not."""

    @abstractmethod
    def receive(self) -> bytes | None:
        """What the worker sent, None if it died, nothing (b"") if neither; what it tells of its stage goes there."""

    @abstractmethod
    def continue_start(self, message: bytes) -> None:
        """Take a message of a worker that is starting: one more step towards being idle."""

    @abstractmethod
    def end(self) -> str:
        """End the worker and what it does; says how it ended."""


SomeWorker = TypeVar("SomeWorker", bound=Worker)


class Workers(ABC, Generic[SomeWorker]):
    """Where workers for one kind of work come from."""

    #: what a user can do if they do not start
    what_to_do: str

    def __init__(self, work: Work[Any, Any]):
        self.work = work

    @property
    @abstractmethod
    def size(self) -> int:
        """How many there may be now."""

    @abstractmethod
    def start(self) -> SomeWorker:
        """One more, which starts now."""

    @abstractmethod
    def share(self, common: bytes) -> Any:
        """What to give to `Worker.send` for bytes that go to several workers."""

    @abstractmethod
    def wait(self, workers: Sequence[SomeWorker], seconds: float | None) -> Sequence[SomeWorker]:
        """Those of the workers that sent something or died; waits for that, at most `seconds` if there is a limit."""
