"""Deciding instances in processes of their own: `python -m lingraft.work.vnncomp.instance_process OPTIONS`.

A process takes one instance a line as JSON on standard input and writes one answer a line to standard output. One that
dies or overruns its time costs its instance the answer and nobody else's. It ends when its input closes.
"""

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingraft.errors import LingraftError
from lingraft.formats.answer import Answer

if TYPE_CHECKING:
    from lingraft.formats.onnx_network import OnnxNetwork

#: An answer may come this much later than the limit: a share of it, and seconds. Then the process is ended.
LATE_SHARE, LATE_SECONDS = 0.02, 0.9
#: Seconds that a process may take to load torch.
START_SECONDS = 300.0


class Decider:
    """Answers instances in this process; the last network is kept, since benchmarks ask much about few."""

    def __init__(self, memory: float | None, double: bool, seed: int):
        self.memory, self.double, self.seed = memory, double, seed
        self.network: OnnxNetwork | None = None

    def ask(self, onnx: Path, vnnlib: Path, timeout: float) -> Answer:
        """The answer; files that cannot be read are the answer "error"."""
        from lingraft.formats.onnx_network import OnnxNetwork
        from lingraft.solver.request import Limits
        from lingraft.work.vnncomp.instance import Instance

        started = time.monotonic()
        limits = Limits(timeout, self.memory, self.double, self.seed)
        try:
            if self.network is None or self.network.path != onnx:
                self.network = None  # frees its memory before the next one is read
                self.network = OnnxNetwork(onnx)
            return Instance.read(self.network, vnnlib).answer(limits, started)
        except LingraftError as error:
            return Answer("error", time.monotonic() - started, reason=str(error))

    def close(self) -> None:
        """Nothing stays behind."""


class DeciderProcess:
    """A Decider in another process, with one thread, that is started when it is needed."""

    def __init__(self, memory: float, double: bool, seed: int):
        self._options = json.dumps([memory, double, seed])
        self._process: subprocess.Popen[str] | None = None

    def ask(self, onnx: Path, vnnlib: Path, timeout: float) -> Answer:
        """The answer; a process that died is no answer and says so, one that is overdue is a timeout."""
        process = self._started()
        started = time.monotonic()
        late = timeout * LATE_SHARE + LATE_SECONDS
        reply = self._exchange(process, json.dumps([str(onnx), str(vnnlib), timeout]), timeout + late)
        seconds = time.monotonic() - started
        if reply:
            from lingraft.work.vnncomp.answer_log import answer_of

            return answer_of(json.loads(reply))
        overdue = reply is None
        self.close()
        if overdue:
            return Answer("timeout", seconds, reason="time")
        return Answer("error", seconds, reason=f"the process that verified it ended with code {process.returncode}")

    def close(self) -> None:
        """End the process and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            path = os.pathsep.join(part for part in sys.path if part)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **threads, "PYTHONPATH": path},
                text=True,
                bufsize=1,
                start_new_session=True,  # Ctrl-C is for us; we end the processes
            )
            if not self._exchange(self._process, None, START_SECONDS):
                self.close()
                raise LingraftError("the process to verify in does not start (see above). Use --workers 0.")
        return self._process

    def _exchange(self, process: "subprocess.Popen[str]", line: str | None, seconds: float) -> str | None:
        """Send a line and wait for one: "" if the process died, None if nothing came in time."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if line is not None:
                process.stdin.write(line + "\n")
            ready, _, _ = select.select([process.stdout], [], [], seconds)
            return process.stdout.readline() if ready else None
        except (BrokenPipeError, ValueError):
            return ""


def _listen(lines: "queue.Queue[str]") -> None:
    """Pass on what comes in; when the input closes the parent is gone, and there is nobody to work for."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def main(options: str) -> None:
    """Serve the process at the other end of the pipes."""
    # nothing but answers may appear there, whatever is printed by libraries
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch

    from lingraft.pool.answerer import SLACK
    from lingraft.process_memory import die_first, limit_memory

    memory, double, seed = json.loads(options)
    torch.set_num_threads(1)
    die_first()
    limit_memory(memory + SLACK)
    decider = Decider(memory, double, seed)
    answers.write("ready\n")
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    while True:
        onnx, vnnlib, timeout = json.loads(lines.get())
        answer: dict[str, Any] = decider.ask(Path(onnx), Path(vnnlib), timeout).as_dict()
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
