"""Running another verifier as a command.

It gets an ONNX file and a VNN-LIB file, one CPU thread, and is ended when it overruns its time. A counterexample that
it finds is replayed with onnxruntime, so its `sat` is not taken on trust.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lingraft.errors import LingraftError
from lingraft.formats.answer import Answer, Counterexample, read_counterexample
from lingraft.formats.benchmark import Entry
from lingraft.formats.onnx_grafted import Form
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.work.vnncomp.instance import Instance

#: Seconds beyond its limit that another tool gets to start and to write its answer, before it is ended.
GRACE = 30.0

#: What the tools call their answers.
WORDS = {
    "unsat": "unsat",
    "holds": "unsat",
    "safe": "unsat",
    "sat": "sat",
    "violated": "sat",
    "unsafe": "sat",
    "timeout": "timeout",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class Call:
    """One call of a tool: its files, the seconds it gets, and where it may write its answer."""

    onnx: Path
    vnnlib: Path
    timeout: float
    out: Path


@dataclass(frozen=True)
class Tool:
    """How another verifier is used.

    `install` says how to get it, `form` which form of the exported network it reads best. `locate` gives the beginning
    of its command, None if it is not installed; `arguments` the rest; `text` makes of what it printed and wrote a text
    that begins with its answer, followed by the counterexample as VNN-COMP writes it.
    """

    name: str
    install: str
    form: Form
    locate: Callable[[], list[str] | None]
    arguments: Callable[[Call], list[str]]
    text: Callable[[str, Call], str]


class ToolRunner:
    """Asks another verifier, one process for each instance."""

    def __init__(self, tool: Tool, command: list[str]):
        self.tool, self.command = tool, command
        self.network: OnnxNetwork | None = None
        self._process: subprocess.Popen[str] | None = None

    def ask(self, onnx: Path, vnnlib: Path, timeout: float) -> Answer:
        """Its answer; a `sat` has a counterexample only if that is one when replayed."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="lingraft-") as scratch:
            call = Call(onnx.resolve(), vnnlib.resolve(), timeout, Path(scratch) / "answer.txt")
            code, printed = self._run([*self.command, *self.tool.arguments(call)], Path(scratch), timeout + GRACE)
            seconds = time.monotonic() - started
            text = self.tool.text(printed, call)
        if code is None:
            return Answer("timeout", seconds, reason=f"ended {GRACE:g} s after its limit")
        first = text.split(maxsplit=1)[0].lower() if text.strip() else ""
        word = WORDS.get(re.split(r"[-,]", first)[0])
        if word is None:
            return Answer("error", seconds, reason=f"exit code {code}: {_last_line(printed)}")
        if word != "sat":
            return Answer(word, seconds)
        point = self._replayed(onnx, vnnlib, text)
        return Answer("sat", seconds, point, None if point else "its counterexample is none when replayed")

    def answers(self, entries: Sequence[Entry], numbers: Iterable[int]) -> Iterator[tuple[int, Answer]]:
        """The number and its answer of some instances of a benchmark, one after the other."""
        for number in numbers:
            entry = entries[number]
            yield number, self.ask(entry.onnx, entry.vnnlib, entry.timeout)

    def _end(self) -> None:
        """End what is running, and whatever that started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:  # Windows
                    self._process.kill()

    def _run(self, command: list[str], folder: Path, seconds: float) -> tuple[int | None, str]:
        """Exit code (None if it was ended) and output of a command, run with one thread in `folder`."""
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        try:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **threads},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise LingraftError(f"cannot run {command[0]}: {error.strerror}. Give the tool with --tool.") from error
        try:
            printed, _ = self._process.communicate(timeout=seconds)
            return self._process.returncode, printed
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            self._end()
            self._process.communicate()
            self._process = None

    def _replayed(self, onnx: Path, vnnlib: Path, text: str) -> Counterexample | None:
        """The counterexample in its answer; what it rounded to print or left the box by rounding is moved back."""
        if self.network is None or self.network.path != onnx:
            self.network = OnnxNetwork(onnx)
        instance = Instance.read(self.network, vnnlib)
        try:
            x = read_counterexample(text, self.network.inputs)
        except LingraftError:
            return None
        if x is None:
            return None
        for box in instance.property.boxes:
            point = instance.replay(np.clip(x, box.lower, box.upper)) if np.isfinite(x).all() else None
            if point is not None:
                return point
        return None


def _last_line(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
