"""Problems spread over worker processes: one process a core, one thread each.

The processes are new interpreters, neither forks of this one (unsafe once torch has threads) nor imports of the
caller's script (which may have no main guard). One that dies costs its problem one retry; one that overruns its time
is ended. Whatever happens here, no process stays behind: each holds a pipe to this one and ends when that closes.
"""

import os
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait

from lingraft.errors import LingraftError
from lingraft.verification.network import Network
from lingraft.verification.verifier import Problem, Result

#: An answer may come this much later than the limit: a share of it, and seconds. Then the process is ended.
LATE_SHARE, LATE_SECONDS = 0.02, 0.9

#: Tries at one problem whose process died, and processes in a row that do not even start before we give up.
TRIES, FAILED_STARTS = 2, 3

#: Seconds that a process may take to load torch and the network.
START_SECONDS = 300.0


#: number of a problem → the problem, and the seed of its attacks
Ask = Callable[[int], tuple[Problem, int]]


@dataclass
class _Task:
    """The number of a problem, and how often it was tried in vain."""

    number: int
    tries: int = 0


class _Worker:
    """One process, and what it is doing."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lingraft.verification.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,  # never written: it closes when this process ends, however it ends
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for us; we end the workers
            )
        except OSError as error:
            ours.close()
            raise LingraftError(f"cannot start a process to verify in: {error}. Use workers=0.") from error
        finally:
            theirs.close()
        self.connection: Connection = ours
        self.state = "starting"
        self.task: _Task | None = None
        self.begun = time.monotonic()
        self.deadline = self.begun + START_SECONDS

    def begin(self, task: _Task, question: tuple[Problem, int], seconds: float) -> None:
        """Send a problem, to be answered within so many seconds."""
        message = pickle.dumps(question)
        self.task, self.state = task, "busy"
        self.begun = time.monotonic()
        self.deadline = self.begun + seconds
        self._send(message)

    def prepare(self, setup: bytes) -> None:
        """Send the network."""
        self.state = "preparing"
        self._send(setup)

    def _send(self, message: bytes) -> None:
        with suppress(ConnectionError):  # the process died: the next look at the connection finds that
            self.connection.send_bytes(message)

    def receive(self) -> bytes | None:
        """What the process sent, None if it died."""
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        """End the process and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Crew:
    """Worker processes for one network."""

    def __init__(self, network: Network, count: int, timeout: float, memory: float, double: bool, prove: bool = False):
        self.setup = pickle.dumps((network, double, timeout, memory, prove))
        self.count, self.timeout = count, timeout
        self.workers: list[_Worker] = []
        self.failed_starts = 0

    def run(self, numbers: Iterable[int], ask: Ask) -> Iterator[tuple[int, Result]]:
        """The number and the result of every problem, as they finish."""
        left = deque(_Task(number) for number in numbers)
        try:
            while left or any(worker.task for worker in self.workers):
                self._hire(len(left))
                for worker in self.workers:
                    if worker.state == "idle" and left:
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
        """As many processes as there is work for; those that are busy already have theirs."""
        busy = sum(worker.task is not None for worker in self.workers)
        while len(self.workers) < min(self.count, busy + waiting):
            self.workers.append(_Worker())

    def _with_news(self) -> list[_Worker]:
        """Workers that sent something, died, or are overdue; waits until there is one."""
        watched = [worker for worker in self.workers if worker.state != "idle"]
        soonest = min(worker.deadline for worker in watched) - time.monotonic()
        ready = wait([worker.connection for worker in watched], max(soonest, 0))
        now = time.monotonic()
        return [worker for worker in watched if worker.connection in ready or worker.deadline <= now]

    def _hear(self, worker: _Worker, left: deque[_Task]) -> Iterator[tuple[int, Result]]:
        message = worker.receive() if worker.connection.poll() else b""
        if message and worker.task is not None:
            task, worker.task, worker.state = worker.task, None, "idle"
            yield task.number, pickle.loads(message)
        elif message:
            self._advance(worker)
        else:  # died (None) or overdue (nothing)
            worker.end()
            self.workers.remove(worker)
            if worker.task is None:
                self._failed_to_start(worker)
                return
            task, seconds = worker.task, time.monotonic() - worker.begun
            task.tries += 1
            if message is not None:
                yield task.number, Result("unknown", "", "time", seconds=seconds)
            elif task.tries < TRIES:
                left.appendleft(task)
            else:
                code = worker.process.returncode
                error = f"the process that verified it ended with code {code}, {TRIES} times"
                yield task.number, Result("unknown", "", "crashed", seconds=seconds, error=error)

    def _advance(self, worker: _Worker) -> None:
        """From starting over preparing to idle."""
        if worker.state == "starting":
            worker.prepare(self.setup)
        else:
            worker.state = "idle"
            self.failed_starts = 0

    def _failed_to_start(self, worker: _Worker) -> None:
        self.failed_starts += 1
        if self.failed_starts >= FAILED_STARTS:
            raise LingraftError(
                f"the processes to verify in do not start (exit code {worker.process.returncode}; see above)."
                " Use workers=0 to verify in this process."
            )
