"""Worker processes on this machine, one thread each.

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
from typing import Any

from lingraft.errors import LingraftError
from lingraft.pool.server import STAGE
from lingraft.pool.work import Work
from lingraft.pool.worker import Worker, Workers

#: Whether this system has them: they inherit an open socket.
POSSIBLE = os.name == "posix"


class ProcessWorker(Worker):
    """One process, which gets its pickled `work` when it is up and may use `memory` bytes."""

    def __init__(self, work: bytes, memory: float) -> None:
        super().__init__()
        self.work = work
        ours, theirs = Pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lingraft.pool.worker_process", str(theirs.fileno()), str(memory)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,  # closes when this process ends, however it ends
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for us; we end the workers
            )
        except OSError as error:
            ours.close()
            raise LingraftError(f"cannot start a worker process: {error}. Use workers=0.") from error
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
            while self.connection.poll():
                message = self.connection.recv_bytes()
                if not message.startswith(STAGE):
                    return message
                self.stage = message.removeprefix(STAGE).decode()
            return b""
        except (EOFError, OSError):
            return None

    def continue_start(self, message: bytes) -> None:
        if message == b"up":
            self._send(self.work)
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


class Processes(Workers[ProcessWorker]):
    """Up to `size` worker processes for the same work, which share `memory` bytes."""

    what_to_do = "See above; use workers=0 to do the work in this process."

    def __init__(self, work: Work[Any, Any], size: int, memory: float):
        super().__init__(work)
        if not POSSIBLE:
            raise LingraftError("worker processes need Linux or macOS. Use workers=0, which works in this process.")
        self.packed, self._size, self.memory = pickle.dumps(work), size, memory / size

    @property
    def size(self) -> int:
        return self._size

    def share(self, common: bytes) -> bytes:
        return common

    def start(self) -> ProcessWorker:
        return ProcessWorker(self.packed, self.memory)

    def wait(self, workers: Sequence[ProcessWorker], seconds: float | None) -> list[ProcessWorker]:
        ready = wait([worker.connection for worker in workers], seconds)
        return [worker for worker in workers if worker.connection in ready]
