"""One process at a time in a run folder.

The lock is the kernel's (flock) on the file `.lock` in the folder: it ends with the process that holds it, however
that ends, so there is no lock left to clear after a kill, a crash or a reboot, and it does not matter whether another
process has got the same number since. The text in the file only says who holds it, or who died holding it.

On NFS a lock holds among all machines (Linux hands it to the server). Where there are no such locks, as on Windows and
on some cluster file systems, the folder is used without one, with a warning.
"""

import errno
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lingraft.command import current
from lingraft.errors import LingraftError
from lingraft.progress import console

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"

#: What a file system without locks answers.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)

#: Folders that this process holds, by their real path.
_held: set[Path] = set()


@dataclass(frozen=True)
class Holder:
    """The process that holds a folder, or died holding it."""

    process: int
    host: str
    command: str
    since: str

    @classmethod
    def this(cls) -> "Holder":
        """This process, from now on."""
        command = current()
        line = "a Python program" if command is None else f"`{command.line}`"
        return cls(os.getpid(), platform.node(), line, datetime.now(UTC).isoformat(timespec="seconds"))

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} ({self.command}, since {self.since})"


@contextmanager
def held(folder: Path) -> Iterator[Holder | None]:
    """Keep every other process out of `folder`, which is made if it is not there, until the block ends.

    A LingraftError if another process is in it. Gives the process that held the folder last if that one was killed.
    Within one process the same folder may be held again: the inner block does nothing.
    """
    folder = folder.resolve()
    if folder in _held:
        yield None
        return
    made = not folder.exists()
    file, before = _lock(folder)
    _held.add(folder)
    try:
        yield before
    finally:
        _held.discard(folder)
        if file is not None:
            with suppress(OSError):
                (folder / NAME).unlink()  # while it is locked: a process that has it open already looks again
            os.close(file)
        if made:
            with suppress(OSError):  # not empty
                folder.rmdir()


def _lock(folder: Path) -> tuple[int | None, Holder | None]:
    """An open file that holds the lock, None where there are no locks; and who died holding it."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if not _try_lock(file, folder):
                    os.close(file)
                    return None, None
                if _is_at(file, path):
                    before = _read(file)
                    os.ftruncate(file, 0)
                    os.pwrite(file, json.dumps(asdict(Holder.this())).encode(), 0)
                    return file, before
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # its last holder removed it between our opening and locking it
    except OSError as error:
        raise LingraftError(
            f"cannot write in {folder}: {error.strerror or error}. Check the folder and its free space."
        ) from error


def _try_lock(file: int, folder: Path) -> bool:
    """Lock an open file; False where that is impossible, a LingraftError if another process did before."""
    reason = "this system has no file locks"
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError as error:
            raise LingraftError(
                f"{folder} is in use by {_read(file) or 'another process'}."
                " Wait until that is done, stop it, or choose another folder."
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            reason = error.strerror or reason
    console.print(
        f"[yellow]warning:[/] {folder} cannot be locked ({reason}): see to it that no other process writes to it.",
        highlight=False,
        soft_wrap=True,
    )
    return False


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one with this name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read(file: int) -> Holder | None:
    """Who a lock file names; None if it names nobody, or was cut short."""
    try:
        record: Any = json.loads(os.pread(file, 65536, 0))
        return Holder(**record)
    except (ValueError, TypeError, RecursionError):
        return None
