"""The syntax of VNN-LIB: nested lists in parentheses, read in one pass."""

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lingraft.errors import LingraftError

#: Above this many bytes, unpacked, a file is refused.
MAX_BYTES = 1 << 28
#: Formulas are a few lists deep; a deeper file is damaged or hostile.
MAX_DEPTH = 50

_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(slots=True)
class Group:
    """A list in parentheses and the line on which it begins."""

    items: "list[str | Group]"
    line: int

    @property
    def head(self) -> str:
        """Its first word, or nothing."""
        return self.items[0] if self.items and isinstance(self.items[0], str) else ""


def read_text(path: Path) -> str:
    """The text of a VNN-LIB file, plain or gz."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise LingraftError(f"cannot read {path}: {reason}. Check the path and that the file is whole.") from error
    if len(content) > MAX_BYTES:
        raise LingraftError(f"{path} has more than the {MAX_BYTES:,} bytes that lingraft reads.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise LingraftError(f"{path} is not text, so it is no VNN-LIB file.") from error


def groups(text: str) -> Iterator[Group]:
    """The outermost lists of a text, in order; errors begin with the line number."""
    open_groups: list[Group] = []
    line = 0
    for line, content in enumerate(text.split("\n"), start=1):
        for token in _TOKEN.findall(content.split(";", 1)[0]):
            if token == "(":
                if len(open_groups) >= MAX_DEPTH:
                    raise LingraftError(f"line {line}: more than {MAX_DEPTH} parentheses are open.")
                open_groups.append(Group([], line))
            elif token != ")":
                if not open_groups:
                    raise LingraftError(f"line {line}: {token[:40]!r} outside of parentheses.")
                open_groups[-1].items.append(token)
            else:
                if not open_groups:
                    raise LingraftError(f"line {line}: a closing parenthesis too many.")
                closed = open_groups.pop()
                if open_groups:
                    open_groups[-1].items.append(closed)
                else:
                    yield closed
    if open_groups:
        raise LingraftError(f"line {line}: the file ends inside the list begun on line {open_groups[0].line}.")
