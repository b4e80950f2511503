"""Progress of what takes longer than two seconds: a bar with the time left on a terminal and in a notebook.

Elsewhere, on standard error of a job or in a log, a line now and then.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from threading import Timer
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: advance(steps, note): steps done since the last call, and a short text shown behind the bar.
Advance = Callable[..., None]

#: Seconds of work before anything is shown.
PATIENCE = 2.0

#: Seconds between two lines of a log: at least, at most, and the share of the time so far that it is between these.
AT_LEAST, AT_MOST, SHARE = 10.0, 600.0, 0.1

#: Seconds between two changes of the bar in a notebook.
REDRAWN = 0.2

console = Console(stderr=True)


@contextmanager
def progress(what: str, total: int, shown: bool = True, done: int = 0) -> Iterator[Advance]:
    """Show `what` with `total` steps, unless it is not to be `shown`; yields `advance(steps=1, note="")`.

    So many are `done` already, which took no time.
    """
    if not shown:
        yield lambda steps=1, note="": None
        return
    display = _display(what, total, done)
    try:
        yield display.advance
    finally:
        display.close()


class Display(ABC):
    """What shows how many of `total` steps are done; `before` of them were when it began."""

    def __init__(self, what: str, total: int, before: int = 0):
        self.what, self.total, self.before = what, total, before
        self.done, self.note, self.begun = before, "", time.monotonic()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begun

    def advance(self, steps: int = 1, note: str = "") -> None:
        """So many more steps are done."""
        self.done, self.note = self.done + steps, note
        self.show()

    @abstractmethod
    def show(self) -> None:
        """Show how far it is, unless it is too early."""

    def close(self) -> None:  # noqa: B027  (most have nothing to do)
        """It is over."""

    def __str__(self) -> str:
        left = ""
        if self.before < self.done < self.total:
            each = self.seconds / (self.done - self.before)
            left = f", about {in_words(each * (self.total - self.done))} left"
        text = f"{self.what}: {self.done:,} of {self.total:,} in {in_words(self.seconds)}{left}"
        return f"{text}; {self.note}" if self.note else text


class Bar(Display):
    """On a terminal; it is gone when the work is over."""

    def __init__(self, what: str, total: int, before: int = 0):
        super().__init__(what, total, before)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bar = Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task(what, total=total, completed=before, note="")
        # by a clock of its own: the first step may take long
        self.timer = Timer(PATIENCE, self.bar.start)
        self.timer.daemon = True
        self.timer.start()

    def show(self) -> None:
        self.bar.update(self.task, completed=self.done, note=self.note)

    def close(self) -> None:
        self.timer.cancel()
        self.timer.join()
        if self.bar.live.is_started:
            self.bar.stop()


class Lines(Display):
    """In a log: the longer it takes, the rarer they are."""

    def __init__(self, what: str, total: int, before: int = 0):
        super().__init__(what, total, before)
        self.last = 0.0

    def show(self) -> None:
        if self.seconds - self.last >= min(max(AT_LEAST, SHARE * self.seconds), AT_MOST):
            self.last = self.seconds
            console.print(str(self), highlight=False, markup=False, soft_wrap=True)


class InNotebook(Display):
    """Below the cell of a notebook, where what took longer leaves a line behind."""

    def __init__(self, what: str, total: int, before: int = 0):
        super().__init__(what, total, before)
        # only there is IPython needed, and it is there
        from IPython.display import HTML, display

        self.html: Any = HTML
        self.handle: Any = display(HTML(""), display_id=True)
        self.last = 0.0

    def show(self) -> None:
        if self.seconds >= PATIENCE and self.seconds - self.last >= REDRAWN:
            self.last = self.seconds
            bar = f'<progress value="{self.done}" max="{self.total}"></progress>'
            self.handle.update(self.html(f"{bar} {escape(str(self))}"))

    def close(self) -> None:
        if self.seconds >= PATIENCE:
            self.handle.update(self.html(escape(str(self))))


def _display(what: str, total: int, done: int) -> Display:
    kind = InNotebook if console.is_jupyter else Bar if console.is_terminal else Lines
    return kind(what, total, done)


def in_words(seconds: float) -> str:
    """A time in its two largest units, e.g. 4 s, 12 min, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
