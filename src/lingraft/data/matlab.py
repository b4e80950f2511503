"""Numeric arrays of a MATLAB 5 file ("MAT-File Level 5", the format of SVHN).

scipy.io reads these files too, but a damaged one can crash the whole process in it (found by changing single bytes);
what is needed of the format is small: a header of 128 bytes, then elements. An element is a tag, (type, size) in two
32-bit words, then data padded to a multiple of 8 bytes; up to 4 bytes of data sit in the tag's second word, with
(size, type) as halves of the first. A variable is an element of type matrix, perhaps inside one of type compressed
(zlib, not padded), whose data are elements again: flags, dimensions, name, values.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
#: element type → how its values are stored
_STORAGE = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
#: array classes double, single, and the integers of 8 to 64 bits
_NUMERIC = range(6, 16)
_COMPLEX = 0x800


class _Element(NamedTuple):
    kind: int
    data: memoryview


def arrays(content: bytes, most: int) -> dict[str, NDArray]:
    """The variables of a file that holds real numeric arrays only; ValueError says what is wrong with any other.

    No variable is unpacked to more than `most` bytes, and no memory is set aside for what a header merely claims.
    """
    if len(content) < 128 or content[124:128] not in (b"\x00\x01IM", b"\x01\x00MI"):
        raise ValueError("it does not start like a MATLAB 5 file")
    order = "<" if content[126:128] == b"IM" else ">"
    variables: dict[str, NDArray] = {}
    for element in _elements(memoryview(content)[128:], order):
        if element.kind == _COMPRESSED:
            (element,) = _few(_elements(memoryview(_unpack(element.data, most)), order), 1)
        if element.kind != _MATRIX:
            raise ValueError(f"it has an element of type {element.kind} where a variable should be")
        name, values = _array(element.data, order)
        if name in variables:
            raise ValueError(f"it has the variable {name} twice")
        variables[name] = values
    return variables


def _elements(data: memoryview, order: str) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("it is cut short, or something follows its end")
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise ValueError(f"it has an element of {size} bytes in a space of 4")
            end = at + 8
        else:
            start = at + 8
            end = start + (size if kind == _COMPRESSED else -(-size // 8) * 8)
        if start + size > len(data):
            raise ValueError("it is cut short")
        yield _Element(kind, data[start : start + size])
        at = end


def _few(elements: Iterator[_Element], count: int) -> list[_Element]:
    parts = list(elements)
    if len(parts) != count:
        raise ValueError(f"it has a variable of {len(parts)} elements instead of {count}")
    return parts


def _unpack(data: memoryview, most: int) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"it does not unpack ({error})") from error
    if len(unpacked) > most:
        raise ValueError(f"it has a variable of more than {most:,} bytes")
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("it does not unpack (cut short, or something follows its end)")
    return unpacked


def _array(data: memoryview, order: str) -> tuple[str, NDArray]:
    flags, dimensions, name, values = _few(_elements(data, order), 4)
    if (flags.kind, len(flags.data), dimensions.kind, name.kind) != (_UINT32, 8, _INT32, _INT8):
        raise ValueError("it has a variable without flags, dimensions and name")
    title = bytes(name.data).decode("ascii", "replace")
    (flag,) = struct.unpack_from(order + "I", flags.data)
    if flag & 0xFF not in _NUMERIC or flag & _COMPLEX or values.kind not in _STORAGE:
        raise ValueError(f"its variable {title} is not an array of real numbers")
    if len(dimensions.data) % 4:
        raise ValueError(f"its variable {title} has broken dimensions")
    shape = tuple(int(side) for side in np.frombuffer(dimensions.data, order + "i4"))
    stored = np.dtype(order + _STORAGE[values.kind])
    if min(shape, default=-1) < 0 or math.prod(shape) * stored.itemsize != len(values.data):
        raise ValueError(f"its variable {title} has {len(values.data):,} bytes, which do not fit the shape {shape}")
    return title, np.frombuffer(values.data, stored).reshape(shape, order="F")
