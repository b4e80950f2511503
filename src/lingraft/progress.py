"""Progress on standard error: a bar with the time left on a terminal, nothing where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: advance(steps, note): steps done since the last call, and a short text shown behind the bar.
Advance = Callable[..., None]

console = Console(stderr=True)


@contextmanager
def progress(what: str, total: int, shown: bool = True) -> Iterator[Advance]:
    """Show `what` with `total` steps, unless it is not to be `shown`; yields `advance(steps=1, note="")`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(what, total=total, note="")

        def advance(steps: int = 1, note: str = "") -> None:
            bar.update(task, advance=steps, note=note)

        yield advance
