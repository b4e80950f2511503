"""The syntax of VNN-LIB: nested lists in parentheses, read in one pass."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lingraft.errors import LingraftError

#: Above this many bytes, unpacked, a file is refused.
MAX_BYTES = 1 << 28
#: Formulas are a few lists deep; a deeper file is damaged or hostile.
MAX_DEPTH = 50

NUMBER = r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?"
VARIABLE = r"[XY]_(?:0|[1-9]\d{0,9})"

#: Comparisons with a number, of which large files have millions, are one word each.
_TOKEN = re.compile(rf"\([<>]=\s+{VARIABLE}\s+{NUMBER}\s*\)|[()]|[^\s()]+", re.ASCII)
#: In version 2.0 a name, or a type, and the numbers in brackets behind it are one word; text in quotes is one, too.
_TOKEN_2 = re.compile(
    rf"""\([<>]=\s+[A-Za-z]\w*\[[\d,]*\]\s+{NUMBER}\s*\)|"""
    r"""[()]|"[^"]*"|(?:[A-Za-z]\w*\s*)?\[[^\[\]()";]*\]|;.*|[^\s()\[\]";]+|\S""",
    re.ASCII,
)
#: The parts of such a comparison.
COMPARISON = re.compile(r"\(([<>]=)\s+(\S+)\s+(\S+?)\s*\)")
#: A name and what is in the brackets.
ELEMENT = re.compile(r"([A-Za-z]\w*)\[([\d,]*)\]", re.ASCII)
#: The two kinds of lines of which most files have nothing but, and on which reading quickly depends.
_SIMPLE = re.compile(
    rf"\s*\((?:declare-const\s+({VARIABLE})\s+Real|assert\s*\(\s*([<>]=)\s+({VARIABLE})\s+({NUMBER})\s*\))\s*\)\s*"
)
_SIMPLE_2 = re.compile(
    rf"\s*\(()assert\s*\(\s*([<>]=)\s+([A-Za-z]\w*\[[\d,]*\])\s+({NUMBER})\s*\)\s*\)\s*",
    re.ASCII,
)
#: Spaces and comments at the beginning of a file, and the statement of its version; no number in it is long.
_VERSION = re.compile(r"(?:\s++|;[^\n]*+)*+\(vnnlib-version\s+<(\d{1,9}\.\d{1,9})>\s*\)")


@dataclass(slots=True)
class Group:
    """A list in parentheses and the line on which it begins; comparisons with a number are text, "(<= X_0 1)"."""

    items: "list[str | Group]"
    line: int

    @property
    def head(self) -> str:
        """Its first word, or nothing."""
        return self.items[0] if self.items and isinstance(self.items[0], str) else ""


class Declaration(NamedTuple):
    """A line (declare-const X_0 Real)."""

    name: str
    line: int


class Bound(NamedTuple):
    """A line (assert (<= X_0 1.0)), or with X[0], of an input or an output; `relation` is <= or >=."""

    relation: str
    name: str
    number: float
    line: int


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
        text = content.decode()
    except UnicodeDecodeError as error:
        raise LingraftError(f"{path} is not text, so it is no VNN-LIB file.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text  # comments end with any line


def version(text: str) -> str | None:
    """What a text says of its version, "2.0"; None if it does not begin with it, as no text of version 1.0 does."""
    found = _VERSION.match(text)
    return found and found[1]


def statements(text: str) -> Iterator[Group | Declaration | Bound]:
    """The outermost lists of a text of version 1.0, in order; errors begin with the line number.

    Lists that fill one line and are declarations or bounds may come as such.
    """
    return _statements(text, _SIMPLE, lambda line: _TOKEN.findall(line.split(";", 1)[0]))


def statements_2(text: str) -> Iterator[Group | Declaration | Bound]:
    """The outermost lists of a text of version 2.0 in the same way, without spaces in X[0,1]."""
    return _statements(text, _SIMPLE_2, _tokens_2)


def _tokens_2(line: str) -> Iterator[str]:
    for token in _TOKEN_2.findall(line):
        if token[0] != ";":
            yield "".join(token.split()) if token[-1] == "]" else token


def _statements(
    text: str, simple: re.Pattern[str], tokens: Callable[[str], Iterable[str]]
) -> Iterator[Group | Declaration | Bound]:
    open_groups: list[Group] = []
    line = 0
    for line, content in enumerate(text.split("\n"), start=1):
        if not open_groups and (found := simple.fullmatch(content)):
            declared, relation, name, number = found.groups()
            yield Declaration(declared, line) if declared else Bound(relation, name, float(number), line)
            continue
        for token in tokens(content):
            if token == "(":
                if len(open_groups) >= MAX_DEPTH:
                    raise LingraftError(f"line {line}: more than {MAX_DEPTH} parentheses are open.")
                open_groups.append(Group([], line))
            elif token != ")":
                if open_groups:
                    open_groups[-1].items.append(token)
                elif token[0] == "(":
                    yield Group([token], line)
                else:
                    raise LingraftError(f"line {line}: {token[:40]!r} outside of parentheses.")
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
