"""The command that is running, so that the run folders it writes to can say how they were made."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """A command line as it was typed, and when it was started (UTC, to the second)."""

    line: str
    started: str
    #: closed when it ends
    resources: ExitStack = field(default_factory=ExitStack, compare=False, repr=False)


_running: ContextVar[Command | None] = ContextVar("running", default=None)


@contextmanager
def running(line: str) -> Iterator[None]:
    """Inside, `current` is this command."""
    command = Command(line, datetime.now(UTC).isoformat(timespec="seconds"))
    token = _running.set(command)
    try:
        with command.resources:
            yield
    finally:
        _running.reset(token)


def current() -> Command | None:
    """The command that is running; None where lingraft is used from Python."""
    return _running.get()


def until_done(resource: AbstractContextManager[T]) -> T:
    """Enter `resource` and leave it when the command that is running ends."""
    command = current()
    assert command is not None, "only commands have an end"
    return command.resources.enter_context(resource)
