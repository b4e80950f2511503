"""Looking things up by the name, or the numbers, that a person typed."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from lingraft.errors import LingraftError

T = TypeVar("T")


def short_name(text: str) -> str:
    """A part of other names: `mine` of data/mine.npz, `net` of net.onnx, `make` of net.py:make, others as they are."""
    name = Path(text.rpartition(":")[2]).name
    for ending in (".npz", ".onnx.gz", ".onnx"):
        name = name.removesuffix(ending)
    return name


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """`known[name]`, or an error that lists the known names and the nearest one."""
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise LingraftError(f"unknown {kind} {name!r}.{guess} Known: {', '.join(known)}.")


def parse_images(text: str) -> slice:
    """Which images of a data set: a number n for the first n, a range `3:100` or `5:`, or `all`."""
    if text == "all":
        return slice(None)
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 2 or not all(part.isdecimal() or (len(parts) == 2 and not part) for part in parts):
        raise LingraftError(f"--images {text!r} are not images. Write 100 (the first ones), a range 0:100, or all.")
    if len(parts) == 1:
        return slice(int(parts[0]))
    return slice(int(parts[0] or 0), int(parts[1]) if parts[1] else None)
