"""Commands of lingraft as processes that can be killed at a chosen moment.

They are forks of this process, which has imported everything and computed nothing, so that each costs no start of
Python and torch.
"""

import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: A command that takes longer hangs.
PATIENCE = 600.0


def preload() -> None:
    """Import what the commands import when they run."""
    for name in (
        "matplotlib.backends.backend_agg",
        "matplotlib.figure",
        "sklearn.datasets",
        "torch._dynamo",  # the optimizer would, after every fork again
        "lingraft.checker.check",
        "lingraft.runs.holding",
        "lingraft.work.demo",
        "lingraft.work.experiments",
        "lingraft.formats.onnx_export",
        "lingraft.work.certify",
    ):
        importlib.import_module(name)


@dataclass
class Outcome:
    """How a command ended."""

    command: str
    code: int
    output: str
    errors: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    def problem(self) -> str | None:
        """What is wrong with an end that should be a result or one line that says what to do."""
        if "Traceback (most recent call last)" in self.errors:
            return f"{self.command}: traceback: {self.errors.strip().splitlines()[-1]}"
        if self.code == 1 and "error:" not in self.errors:
            return f"{self.command}: failed without a word"
        return None if self.code in (0, 1) else f"{self.command}: exit code {self.code}"


class Command:
    """A command that runs in `folder`."""

    def __init__(self, arguments: Sequence[str], folder: Path, prepare: Callable[[], None] | None = None):
        self.line = " ".join(arguments)
        self.logs = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  (closed by `wait`)
        self.status: int | None = None
        self.begun = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            self._be(list(arguments), folder, prepare)

    def _be(self, arguments: list[str], folder: Path, prepare: Callable[[], None] | None) -> None:
        code = 70
        try:
            for number, log in enumerate(self.logs, 1):
                os.dup2(log.fileno(), number)
            os.chdir(folder)
            sys.argv = ["lingraft", *arguments]
            if prepare is not None:
                prepare()
            from lingraft.cli import main

            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def kill(self) -> None:
        """kill -9, unless it has ended."""
        if not self.is_over():
            os.kill(self.pid, signal.SIGKILL)

    def is_over(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def wait(self) -> Outcome:
        """Its end; a command that hangs is killed, and the code is then 124."""
        hangs = False
        while not self.is_over():
            if time.monotonic() - self.begun > PATIENCE and not hangs:
                hangs = True
                self.kill()
            time.sleep(0.005)
        assert self.status is not None
        seconds = time.monotonic() - self.begun
        for log in self.logs:
            log.seek(0)
        output, errors = (log.read().decode(errors="replace") for log in self.logs)
        for log in self.logs:
            log.close()
        return Outcome(self.line, 124 if hangs else os.waitstatus_to_exitcode(self.status), output, errors, seconds)


def run(arguments: Sequence[str], folder: Path, prepare: Callable[[], None] | None = None) -> Outcome:
    """Run a command to its end."""
    return Command(arguments, folder, prepare).wait()


def at_operation(folder: Path, act: Callable[[int, str, str], None]) -> Callable[[], None]:
    """Makes a preparation that calls `act` (number, what, path) before every file operation in `folder`."""

    def prepare() -> None:
        seen = 0

        def hook(event: str, args: tuple[object, ...]) -> None:
            nonlocal seen
            if event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir"):
                path = os.path.abspath(os.fsdecode(args[0])) if isinstance(args[0], str | bytes) else ""
                if path.startswith(str(folder)):
                    seen += 1
                    act(seen, event, path)

        sys.addaudithook(hook)

    return prepare


def kill_at(folder: Path, point: int) -> Callable[[], None]:
    """A preparation that kills the process just before its file operation number `point` in `folder`.

    A file that is about to be put in place is cut in half before, as if the kill had come while it was written.
    """

    def act(number: int, event: str, path: str) -> None:
        if number == point:
            if event == "os.rename":
                os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return at_operation(folder, act)


def count_operations(arguments: Sequence[str], folder: Path) -> int:
    """How many file operations a command does in `folder`; it is run to its end."""
    counter = folder.parent / f"{folder.name}.count"
    descriptor = os.open(counter, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        outcome = run(arguments, folder, at_operation(folder, lambda *what: os.write(descriptor, b".") and None))
    finally:
        os.close(descriptor)
    if outcome.code:
        raise SystemExit(f"{outcome.command} failed undisturbed: {outcome.errors}")
    return counter.stat().st_size
