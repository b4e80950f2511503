"""Commands that write to a folder keep other processes out of it, and clear what a killed one left half done."""

import os
from pathlib import Path

from lingraft.command import until_done
from lingraft.errors import LingraftError
from lingraft.files import remove_parts
from lingraft.progress import console
from lingraft.runs import Run
from lingraft.runs.lock import held


def _set_aside(folder: Path) -> None:
    """A summary that cannot be read is put away before work begins whose figures could not be added to it."""
    try:
        Run(folder).summary()
    except LingraftError as error:
        summary = Run(folder).summary_path
        aside = summary.with_name(f"{summary.name}.damaged")
        os.replace(summary, aside)
        console.print(
            f"{error} It is now {aside.name}; a new one is begun. commands.jsonl says what measured the old one.",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )


def hold(folder: Path, then: str = "going on from what it left") -> None:
    """Hold `folder` until the command that is running ends; a LingraftError if another process is in it.

    `then` is what the command does where one before it was killed.
    """
    killed = until_done(held(folder))
    parts = remove_parts(folder)
    if killed is not None:
        console.print(
            f"{folder}: {killed} did not end well; {then}.",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
    _set_aside(folder)
    if parts:
        files = "1 file that was" if parts == 1 else f"{parts} files that were"
        console.print(f"{folder}: removed {files} only half written.", highlight=False, soft_wrap=True, markup=False)
