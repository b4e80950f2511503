"""Files that are either whole or not there: what a killed process leaves behind is never taken for good.

JSON that lingraft writes for itself ends with a checksum, `crc32`, so that a file damaged later is noticed when it is
read. Without one (as in files of older versions, and where a person has removed it to change something) all is read.
"""

import glob
import hashlib
import json
import os
import platform
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.progress import console

_CHECKSUM = "crc32"

#: More bytes than any file of JSON that lingraft writes: what is larger is not one of them.
LARGEST_JSON = 256 * 1024**2


def unwritable(path: Path, error: OSError) -> LingraftError:
    """What to say when a file cannot be written."""
    return LingraftError(f"cannot write {path}: {error.strerror or error}. Check the folder and its free space.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; when the block ends well it is flushed to disk and renamed to `path`."""
    part = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
        _flush_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):  # already renamed, or never made
            part.unlink()


def _flush_folder(folder: Path) -> None:
    """Have the names in a folder on disk too: without it a file that was just made may be gone after a power cut."""
    with suppress(OSError):  # not every system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def digest_file(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal; one that cannot be read is a LingraftError."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LingraftError(f"cannot read {path}: {error.strerror or error}. Check its name.") from error


def remove_parts(folder: Path) -> int:
    """Remove what a process killed in the middle of a save left in `folder` and in the folders in it; says how many.

    Folders in it that are in use by a process of their own (they have a `.lock`) are left alone.
    """
    inner = (place for place in folder.glob("*/") if not (place / ".lock").exists())
    parts = [part for place in (folder, *inner) for part in place.glob(".*.part")]
    for part in parts:
        with suppress(OSError):  # it does no harm
            part.unlink()
    return len(parts)


def remove_dead_parts(folder: Path) -> None:
    """Remove what killed processes left half written in a folder that others may be writing to: only theirs."""
    for part in folder.glob(f".*.{glob.escape(platform.node())}.*.part"):
        number = part.name.split(".")[-2]
        if number.isdecimal() and not _is_running(int(number)):
            with suppress(OSError):  # it does no harm
                part.unlink()


def _is_running(process: int) -> bool:
    """Whether this machine has such a process; where that cannot be asked it may have."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's, or no number of a process
        return True
    return True


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as readable JSON with a checksum, atomically."""
    with replacing(path) as part:
        text = json.dumps(_with_checksum(content), indent=2, allow_nan=False)
        part.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a missing or damaged file is a LingraftError that names it."""
    try:
        content = _parse(_read(path))
    except FileNotFoundError as error:
        raise LingraftError(f"{path} is missing. Is {path.parent} a run folder?") from error
    except (OSError, ValueError) as error:
        raise LingraftError(f"{path} is damaged ({error}). Restore it or make the run again.") from error
    if not _is_whole(content):
        raise LingraftError(
            f"{path} is damaged: its checksum is wrong. Restore it or make the run again"
            f' (if you changed it yourself, remove its "{_CHECKSUM}").'
        )
    return content


def line_of(record: Mapping[str, Any]) -> bytes:
    """A record as a line of a JSON-lines file, with a checksum."""
    return json.dumps(_with_checksum(record), allow_nan=False).encode() + b"\n"


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one JSON line and flush it to disk, first closing a line that a killed process left open."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file:
            first = not file.tell()
            if not first:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(line_of(record))
            file.flush()
            os.fsync(file.fileno())
        if first:
            _flush_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole records of a JSON-lines file; a damaged line, or one cut short by a killed process, is left out."""
    try:
        lines = _read(path).splitlines()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise LingraftError(f"cannot read {path} ({error}). Restore it, or remove it to start it anew.") from error
    records, damaged = [], 0
    for line in lines:
        try:
            record = _parse(line)
            whole = _is_whole(record)
        except ValueError:
            whole = False
        if whole:
            records.append(record)
        else:
            damaged += bool(line.strip())
    if damaged:
        lines_are = "1 line is" if damaged == 1 else f"{damaged} lines are"
        console.print(f"{path}: {lines_are} damaged or cut short, and left out.", highlight=False, soft_wrap=True)
    return records


def _read(path: Path) -> bytes:
    """The content of a file of JSON, which has a size that JSON of ours can have."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise ValueError(f"it has more than {LARGEST_JSON:,} bytes")
    return content


def _parse(text: bytes) -> dict[str, Any]:
    """A JSON object; anything else is a ValueError."""
    try:
        content = json.loads(text.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it should hold a JSON object")
    return content


def _with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    return {**content, _CHECKSUM: _checksum(content)}


def _checksum(content: Mapping[str, Any]) -> str:
    """Of the text of `content`, which is the same after it was written and read."""
    return f"{zlib.crc32(json.dumps(content).encode()):08x}"


def _is_whole(content: dict[str, Any]) -> bool:
    """Whether the checksum is right, if there is one; it is taken out."""
    told = content.pop(_CHECKSUM, None)
    return told is None or told == _checksum(content)
