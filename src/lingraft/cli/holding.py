"""Commands that write to a folder keep other processes out of it, and clear what a killed one left half done."""

import os
from pathlib import Path

from lingraft.command import until_done
from lingraft.errors import LingraftError
from lingraft.files import read_json, remove_parts
from lingraft.progress import console
from lingraft.runs.lock import held


def _set_aside(summary: Path) -> None:
    """A summary that cannot be read is put away before work begins whose figures could not be added to it."""
    if not summary.exists():
        return
    try:
        read_json(summary)
    except LingraftError as error:
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
    _set_aside(folder / "summary.json")
    if parts:
        files = "1 file that was" if parts == 1 else f"{parts} files that were"
        console.print(f"{folder}: removed {files} only half written.", highlight=False, soft_wrap=True, markup=False)
