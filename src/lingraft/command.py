"""The command that is running, so that the run folders it writes to can say how they were made."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Command:
    """A command line as it was typed, and when it was started (UTC, to the second)."""

    line: str
    started: str


_running: ContextVar[Command | None] = ContextVar("running", default=None)


@contextmanager
def running(line: str) -> Iterator[None]:
    """Inside, `current` is this command."""
    command = Command(line, datetime.now(UTC).isoformat(timespec="seconds"))
    token = _running.set(command)
    try:
        yield
    finally:
        _running.reset(token)


def current() -> Command | None:
    """The command that is running; None where lingraft is used from Python."""
    return _running.get()
