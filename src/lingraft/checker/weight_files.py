"""Weights that an ONNX file keeps in files beside it ("external data").

The ONNX file says which bytes of which file; it may say anything. Only ordinary files of the same folder are read, each
once: what is hashed is what is used. A certificate names such a network by one hash that covers all of its files.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from lingraft.checker.regular_file import read_regular
from lingraft.errors import LingraftError

#: Files with weights that one network may have.
MAX_FILES = 64

#: No name of a file is longer, and no offset has more digits.
_LONGEST_NAME, _LONGEST_NUMBER = 255, 15

#: What the text that is hashed begins with: no ONNX file does.
_TITLE = "lingraft: an ONNX file and its weights\n"


class WeightFiles:
    """The files in `folder`, read when they are first named; together they have at most `limit` bytes."""

    def __init__(self, folder: Path, limit: int):
        self.folder, self.room = folder, limit
        self.contents: dict[str, bytes] = {}
        self._used: dict[str, int] = {}

    def part(self, about: Mapping[str, str]) -> memoryview:
        """The bytes that the entries of a tensor's `external_data` speak of."""
        unknown = about.keys() - {"location", "offset", "length", "checksum"}
        if unknown:
            raise LingraftError(f"weights in another file with {sorted(unknown)[0]!r}, which is not known here")
        location = about.get("location", "")
        content = self._content(location)
        offset = _number(about.get("offset", "0"))
        length = _number(about["length"]) if "length" in about else len(content) - offset
        if offset > len(content) or not 0 <= length <= len(content) - offset:
            raise LingraftError(f"weights at {offset:,} of {location!r}, which has {len(content):,} bytes")
        # the same bytes again and again would make much of little
        self._used[location] = self._used.get(location, 0) + length
        if self._used[location] > 2 * len(content):
            raise LingraftError(f"weights that take the same bytes of {location!r} again and again")
        return memoryview(content)[offset : offset + length]

    def sha256(self, content: bytes) -> str:
        """Of a network whose ONNX file has that content: of the file itself if it has no others.

        Else of a text with a line for each file: the hash of the ONNX file, and those of the others with their names.
        """
        own = hashlib.sha256(content).hexdigest()
        if not self.contents:
            return own
        lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(self.contents.items())]
        return hashlib.sha256("".join([_TITLE, f"{own}\n", *lines]).encode()).hexdigest()

    def _content(self, location: str) -> bytes:
        if location not in self.contents:
            if not is_plain_name(location):
                raise LingraftError(
                    f"weights in {location[:_LONGEST_NAME]!r}, which is not a file beside the ONNX file. Put them there"
                )
            if len(self.contents) == MAX_FILES:
                raise LingraftError(f"weights in more than {MAX_FILES} files")
            try:
                content = read_regular(self.folder / location, self.room, follow=False)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise LingraftError(
                    f"weights in {location!r} cannot be read: {reason}. Keep that file in the folder of the ONNX file"
                ) from error
            self.room -= len(content)
            self.contents[location] = content
        return self.contents[location]


def is_plain_name(location: str) -> bool:
    """Whether it is the plain name of a file, on any system."""
    return (
        0 < len(location) <= _LONGEST_NAME
        and location not in (".", "..")
        and not any(c in "/\\:" or not c.isprintable() for c in location)
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        raise LingraftError(f"{text[:_LONGEST_NUMBER]!r} instead of an offset or a length")
    return int(text)
