"""Reading files of unknown origin: whole ordinary files and nothing else."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: str | Path, limit: int, follow: bool = True) -> bytes:
    """The content of an ordinary file of at most `limit` bytes; everything else is an OSError.

    A link is followed only if `follow` says so.
    Pipes, devices and folders are refused before they are opened, since opening or reading one may wait forever, never
    end or do something. The file may be exchanged meanwhile: so it is opened without waiting and looked at again.
    """
    _look(os.stat(path, follow_symlinks=follow), limit)
    names = ["O_NONBLOCK", "O_BINARY", *([] if follow else ["O_NOFOLLOW"])]  # which not every system has
    with open(os.open(path, os.O_RDONLY | sum(getattr(os, name, 0) for name in names)), "rb") as file:
        return file.read(_look(os.fstat(file.fileno()), limit))


def _look(found: os.stat_result, limit: int) -> int:
    """The size of the file."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    if found.st_size > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes")
    return found.st_size
