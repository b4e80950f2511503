"""Worker processes on this machine: one a core, one thread each.

The processes are new interpreters, neither forks of this one (unsafe once torch has threads) nor imports of the
caller's script (which may have no main guard). Each holds a pipe to this one and ends when that closes.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait

from lingraft.errors import LingraftError
from lingraft.pool.crew import Staff, Worker


class ProcessWorker(Worker):
    """One process, which gets `setup` when it is up and may use `memory` bytes."""

    def __init__(self, setup: bytes, memory: float) -> None:
        super().__init__()
        self.setup = setup
        ours, theirs = Pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lingraft.pool.worker", str(theirs.fileno()), str(memory)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,  # closes when this process ends, however it ends
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

    def send(self, question: bytes, common: bytes | None, seconds: float) -> None:
        self._send(pickle.dumps((question, common, seconds)))

    def _send(self, message: bytes) -> None:
        with suppress(ConnectionError):  # the process died: the next look at the connection finds that
            self.connection.send_bytes(message)

    def divide(self, parts: int) -> None:
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.write(bytes([min(parts, 255)]))
                self.process.stdin.flush()

    def receive(self) -> bytes | None:
        try:
            return self.connection.recv_bytes() if self.connection.poll() else b""
        except (EOFError, OSError):
            return None

    def advance(self, message: bytes) -> None:
        if message == b"up":
            self._send(self.setup)
        else:
            self.idle = True

    def end(self) -> str:
        self.process.kill()
        self.process.wait()
        self.connection.close()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        return f"ended with code {self.process.returncode}"


class Processes(Staff[ProcessWorker]):
    """Up to `size` worker processes with the same setup, which share `memory` bytes."""

    instead = "See above; use workers=0 to verify in this process."

    def __init__(self, setup: bytes, size: int, memory: float):
        self.setup, self._size, self.memory = setup, size, memory / size

    @property
    def size(self) -> int:
        return self._size

    def share(self, common: bytes) -> bytes:
        return common

    def hire(self) -> ProcessWorker:
        return ProcessWorker(self.setup, self.memory)

    def with_news(self, workers: Sequence[ProcessWorker], seconds: float) -> list[ProcessWorker]:
        ready = wait([worker.connection for worker in workers], seconds)
        return [worker for worker in workers if worker.connection in ready]
