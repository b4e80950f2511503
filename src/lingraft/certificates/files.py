"""Reading files that may have been put there to do harm."""

import os
import stat
from pathlib import Path

from lingraft.errors import LingraftError


def read_file(path: str | Path, largest: int) -> bytes:
    """The content of an ordinary file; pipes, devices and folders, which may never end, are not opened for reading."""
    try:
        # without waiting: opening a pipe would wait for its other end
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise LingraftError(f"{path} is not an ordinary file.")
            if about.st_size > largest:
                raise LingraftError(f"{path} has {about.st_size:,} bytes, more than {largest:,}.")
            return file.read(about.st_size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LingraftError(f"cannot read {path}: {reason}. Check the path.") from error
