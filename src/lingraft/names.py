"""Looking things up by the name a person typed."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from lingraft.errors import LingraftError

T = TypeVar("T")


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """`known[name]`, or an error that lists the known names and the nearest one."""
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise LingraftError(f"unknown {kind} {name!r}.{guess} Known: {', '.join(known)}.")
