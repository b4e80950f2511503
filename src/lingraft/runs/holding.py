"""Who writes to a folder keeps other processes out of it, and clears what a killed one left half done."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.files import remove_parts
from lingraft.progress import console
from lingraft.runs.lock import held
from lingraft.runs.run import Run


@contextmanager
def holding(folder: Path, then: str = "going on from what it left") -> Iterator[None]:
    """Hold `folder` inside; a LingraftError if another process is in it.

    `then` is what is done where a process before this one was killed.
    """
    with held(folder) as killed:
        parts = remove_parts(folder)
        if killed is not None:
            _say(f"{folder}: {killed} did not end well; {then}.")
        _set_aside(folder)
        if parts:
            files = "1 file that was" if parts == 1 else f"{parts} files that were"
            _say(f"{folder}: removed {files} only half written.")
        yield


def _set_aside(folder: Path) -> None:
    """A summary that cannot be read is put away before work begins whose figures could not be added to it."""
    run = Run(folder)
    try:
        run.summary()
    except LingraftError as error:
        aside = run.summary_path.with_name(f"{run.summary_path.name}.damaged")
        os.replace(run.summary_path, aside)
        _say(f"{error} It is now {aside.name}; a new one is begun. commands.jsonl says what measured the old one.")


def _say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
