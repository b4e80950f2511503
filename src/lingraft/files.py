"""Files that are either whole or not there: what a killed process leaves behind is never taken for good."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; when the block ends well it is flushed to disk and renamed to `path`."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise LingraftError(
            f"cannot write {path}: {error.strerror or error}. Check the folder and its free space."
        ) from error
    finally:
        with suppress(OSError):  # already renamed, or never made
            part.unlink()


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


def write_json(path: Path, content: Any) -> None:
    """Write `content` as readable JSON, atomically."""
    with replacing(path) as part:
        part.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a missing or damaged file is a LingraftError that names it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LingraftError(f"{path} is missing. Is {path.parent} a run folder?") from error
    except (OSError, ValueError) as error:
        raise LingraftError(f"{path} is damaged ({error}). Restore it or make the run again.") from error
    if not isinstance(content, dict):
        raise LingraftError(f"{path} should hold a JSON object. Restore it or make the run again.")
    return content


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append one JSON line and flush it to disk, first closing a line that a killed process left open."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LingraftError(
            f"cannot write {path}: {error.strerror or error}. Check the folder and its free space."
        ) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole records of a JSON-lines file; a line cut short by a killed process is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
