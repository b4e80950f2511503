"""Commands that write to a folder keep other processes out of it, and clear what a killed one left half done."""

from pathlib import Path

from lingraft.command import until_done
from lingraft.files import remove_parts
from lingraft.progress import console
from lingraft.run_lock import held


def hold(folder: Path) -> None:
    """Hold `folder` until the command that is running ends; a LingraftError if another process is in it."""
    killed = until_done(held(folder))
    parts = remove_parts(folder)
    if killed is not None:
        console.print(
            f"{folder}: {killed} did not end well; going on from what it left.",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
    if parts:
        files = "1 file that was" if parts == 1 else f"{parts} files that were"
        console.print(f"{folder}: removed {files} only half written.", highlight=False, soft_wrap=True, markup=False)
