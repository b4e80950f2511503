"""Tasks spread over workers, wherever these are: who does what next, and what happens when one dies or overruns.

A worker that dies costs its task one retry; one that overruns its time is ended. When there are more workers than tasks
left, a task that takes long and can be divided is done in independent parts. Whatever happens here, no worker stays
behind.

    with Pool(Processes(work, 4, memory)) as pool:
        for name in names:
            pool.add(name, partial(read, name), seconds=60.0)
        for name, answer in pool.answers():
            …

Tasks may be added at any time. With `pool.answers(wait=False)` between other work, tasks are done in the background.
"""

import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from lingraft.errors import LingraftError
from lingraft.pool.work import Divided
from lingraft.pool.worker import Task, Worker, Workers
from lingraft.solver.division import Division

#: Tries at one task whose worker died, and workers in a row that do not even start before we give up.
TRIES, FAILED_STARTS = 2, 3

#: A task, or a part of one, is not divided before it took this many seconds: a division costs tenths of one.
DIVIDE_AFTER = 2.0


class Pool:
    """Workers of one kind, which are started as there are tasks for them and end with the context."""

    def __init__(self, source: Workers[Any]):
        self.source = source
        self.workers: list[Worker] = []
        self.left: deque[Task] = deque()
        #: by the name of the task
        self.divisions: dict[Any, Division] = {}
        #: how those in a row ended that did not start
        self.failed_starts: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers:
            worker.end()
        self.workers.clear()

    def add(self, name: Any, ask: Callable[[], Any], seconds: float = math.inf) -> None:
        """One more task, to be answered in `seconds` at most; `ask` gives the question when a worker is free."""
        self.left.append(Task(name, ask, seconds))

    def answers(self, wait: bool = True) -> Iterator[tuple[Any, Any]]:
        """The name and the answer of every task, as they finish; without `wait`, of those that have finished by now."""
        while self.left or self._busy():
            self._start_workers()
            for worker in self.workers:
                if worker.idle and self.left:
                    worker.begin(self.left.popleft())
            self._divide()
            ready = self._ready(wait)
            for worker in ready:
                if worker in self.workers:
                    yield from self._hear(worker)
            if not (wait or ready):
                return

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.task is not None]

    def _start_workers(self) -> None:
        """As many workers as there is work for; those that are busy already have theirs."""
        if len(self.failed_starts) >= FAILED_STARTS:
            if not any(worker.task or worker.idle for worker in self.workers):
                raise LingraftError(
                    f"the worker processes do not start (the last one {self.failed_starts[-1]})."
                    f" {self.source.what_to_do}"
                )
            return  # those that work go on; the next answer of theirs is a reason to try again
        wanted = len(self._busy()) + len(self.left)
        while len(self.workers) < wanted and len(self.workers) < self.source.size:
            self.workers.append(self.source.start())

    def _free(self) -> int:
        """Workers that have nothing to do, and will not get parts of what others were asked to divide."""
        busy = self._busy()
        return self.source.size - len(busy) - sum(worker.wanted_parts - 1 for worker in busy if worker.wanted_parts)

    def _divisible(self) -> list[Worker]:
        """Workers whose tasks should be divided for those that have nothing to do, the longest at work first."""
        if self.left or self._free() <= 0:
            return []
        return sorted((worker for worker in self._busy() if not worker.wanted_parts), key=lambda worker: worker.begun)

    def _divide(self) -> None:
        """Have tasks divided if there would be nothing to do for some workers."""
        old_enough = time.monotonic() - DIVIDE_AFTER
        candidates = [worker for worker in self._divisible() if worker.begun <= old_enough]
        for number, worker in enumerate(candidates):
            worker.wanted_parts = 1 + math.ceil(self._free() / (len(candidates) - number))
            worker.divide(worker.wanted_parts)

    def _ready(self, wait: bool) -> list[Worker]:
        """Workers that sent something, died, or are overdue; may wait until there is one, or a task can be divided."""
        watched = [worker for worker in self.workers if not worker.idle]
        soonest = min(worker.deadline for worker in watched)
        soonest = min([soonest, *[worker.begun + DIVIDE_AFTER for worker in self._divisible()]])
        seconds = max(soonest - time.monotonic(), 0) if wait else 0
        ready = self.source.wait(watched, None if seconds == math.inf else seconds)
        now = time.monotonic()
        return [worker for worker in watched if worker in ready or worker.deadline <= now]

    def _hear(self, worker: Worker) -> Iterator[tuple[Any, Any]]:
        message = worker.receive()
        if message and worker.task is not None:
            task, worker.task, worker.idle = worker.task, None, True
            self.failed_starts.clear()
            yield from self._settle(task, pickle.loads(message))
        elif message:
            worker.continue_start(message)
            if worker.idle:
                self.failed_starts.clear()
        elif message is None or worker.deadline <= time.monotonic():  # died, or is overdue
            how = worker.end()
            self.workers.remove(worker)
            if worker.task is None:
                self.failed_starts.append(how)
                return
            task, seconds = worker.task, time.monotonic() - worker.begun
            task.tries += 1
            if message is not None:
                yield from self._settle(task, self.source.work.failed("time", seconds, None, worker.stage))
            elif task.tries < TRIES:
                self.left.appendleft(task)
            else:
                error = f"its worker {how}, {TRIES} times"
                yield from self._settle(task, self.source.work.failed("crashed", seconds, error, worker.stage))

    def _settle(self, task: Task, answer: Any) -> Iterator[tuple[Any, Any]]:
        """A task was answered: with its answer, or by dividing it."""
        division = self.divisions.get(task.name)
        if isinstance(answer, Divided):
            spent = task.spent + answer.result.seconds
            common = self.source.share(answer.common)
            self.left.extend(Task(task.name, task.ask, task.limit, spent, (part, common)) for part in answer.parts)
            self.divisions[task.name] = division = division or Division()
            division.add(answer.result, spent, len(answer.parts))
        elif division is None:
            yield task.name, answer
        else:
            division.add(answer, task.spent + answer.seconds)
            if division.done:
                self._drop(task.name)
                yield task.name, division.result

    def _drop(self, name: Any) -> None:
        """Nothing more is to be done for a task in parts."""
        del self.divisions[name]
        self.left = deque(task for task in self.left if task.name != name)
        for worker in self._busy():
            if worker.task is not None and worker.task.name == name:
                worker.end()
                self.workers.remove(worker)
