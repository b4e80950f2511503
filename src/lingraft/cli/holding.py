"""Commands that write to a folder keep other processes out of it until they end."""

from pathlib import Path

from lingraft.command import until_done
from lingraft.runs.holding import holding


def hold(folder: Path, then: str = "going on from what it left") -> None:
    """Hold `folder` until the command that is running ends; see `holding`."""
    until_done(holding(folder, then))
