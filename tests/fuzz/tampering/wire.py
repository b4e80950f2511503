"""Protobuf messages as trees that can be bent in ways that no library writes."""

import copy
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Messages of ONNX and the messages in their fields.
SCHEMA: dict[str, dict[int, str]] = {
    "model": {7: "graph", 8: "opset", 14: "other"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 13: "value"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor"},
    "value": {2: "type"},
    "type": {1: "tensor type"},
    "tensor type": {2: "shape"},
    "shape": {1: "dimension"},
}

VARINT, FIXED64, BYTES, GROUP, END, FIXED32 = range(6)


@dataclass
class Field:
    """One field; `value` is an int, bytes, or a Message."""

    number: int
    wire: int
    value: Any
    #: bytes too many in the length or integer
    excess: int = 0


@dataclass
class Message:
    """A message of one of the kinds above."""

    kind: str
    fields: list[Field] = field(default_factory=list)

    def all(self) -> "list[Message]":
        """This message and all below it."""
        found = [self]
        for part in self.fields:
            if isinstance(part.value, Message):
                found += part.value.all()
        return found


def varint(value: int, excess: int = 0) -> bytes:
    """Seven bits a byte, and zeros in excess."""
    parts = []
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    if excess:
        parts[-1] |= 128
        parts += [128] * (excess - 1) + [0]
    return bytes(parts)


def parse(content: bytes, kind: str) -> Message:
    """A well-formed message."""
    result, position = Message(kind), 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = content[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(content):
        key = number()
        place, wire = key >> 3, key & 7
        if wire == VARINT:
            result.fields.append(Field(place, wire, number()))
            continue
        length = number() if wire == BYTES else 8 if wire == FIXED64 else 4
        part: Any = content[position : position + length]
        position += length
        below = SCHEMA.get(kind, {}).get(place)
        if wire == BYTES and below is not None:
            part = parse(part, below)
        result.fields.append(Field(place, wire, part))
    return result


def pack(message: Message) -> bytes:
    """The bytes of a message."""
    parts = []
    for each in message.fields:
        parts.append(varint(each.number << 3 | each.wire))
        value = pack(each.value) if isinstance(each.value, Message) else each.value
        if each.wire == VARINT:
            value = value if isinstance(value, int) else int.from_bytes(value[:8], "little")
            parts.append(varint(value & (1 << 64) - 1, each.excess))
            continue
        data = struct.pack("<Q", value & (1 << 64) - 1) if isinstance(value, int) else value
        if each.wire == BYTES:
            parts.append(varint(len(data), each.excess) + data)
        elif each.wire in (FIXED64, FIXED32):
            size = 8 if each.wire == FIXED64 else 4
            parts.append(data[:size].ljust(size, b"\0"))
        elif each.wire == GROUP:
            parts.append(data + varint(each.number << 3 | END))
        else:
            parts.append(data)
    return b"".join(parts)


INTEGERS = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    11,
    13,
    20,
    127,
    128,
    255,
    2**31 - 1,
    2**31,
    2**32,
    2**32 + 1,
    2**63 - 1,
    2**63,
    2**64 - 2,
    2**64 - 1,
]


def bend(rng: np.random.Generator, root: Message) -> str:
    """One change somewhere; each kind of message is as likely as any other."""
    messages = [message for message in root.all() if message.fields]
    kinds = sorted({message.kind for message in messages})
    chosen = kinds[rng.integers(len(kinds))]
    same = [message for message in messages if message.kind == chosen]
    message = same[rng.integers(len(same))]
    place = int(rng.integers(len(message.fields)))
    part = message.fields[place]
    change = CHANGES[rng.integers(len(CHANGES))]
    other = copy.deepcopy(part)
    if change == "twice":
        message.fields.insert(place, other)
    elif change == "twice and changed":
        alter(rng, other)
        message.fields.insert(place + int(rng.integers(2)), other)
    elif change == "far behind":
        alter(rng, other)
        message.fields.append(other)
    elif change == "wire type":
        part.wire = int(rng.choice([VARINT, FIXED64, BYTES, FIXED32, GROUP]))
    elif change == "twice with another wire type":
        other.wire = int(rng.choice([VARINT, FIXED64, BYTES, FIXED32, GROUP]))
        if rng.random() < 0.7 and other.wire != VARINT:
            other.value = name_in(rng, root, other.wire)
        message.fields.insert(place + int(rng.integers(2)), other)
    elif change == "unknown field":
        number = int(rng.choice([*range(1, 31), 100, 536870911]))
        wire = int(rng.choice([VARINT, FIXED64, BYTES, FIXED32]))
        value: Any = bytes(rng.integers(0, 256, int(rng.integers(0, 12)), dtype=np.uint8))
        if rng.random() < 0.5:
            value = name_in(rng, root, wire)
        message.fields.insert(place, Field(number, wire, INTEGERS[rng.integers(16)] if wire == VARINT else value))
    elif change == "other order":
        message.fields = [message.fields[i] for i in rng.permutation(len(message.fields))]
    elif change == "left out":
        del message.fields[place]
    elif change == "changed":
        alter(rng, part)
    elif change == "other number":
        part.number = int(rng.choice([*range(1, 31), 0, 100]))
    elif change == "in two parts" and isinstance(part.value, Message):
        cut = int(rng.integers(0, len(part.value.fields) + 1))
        other.value = Message(part.value.kind, part.value.fields[cut:])
        part.value = Message(part.value.kind, part.value.fields[:cut])
        message.fields.insert(place + 1, other)
    elif change == "too long":
        part.excess = int(rng.integers(1, 6))
    elif change == "from elsewhere":
        more = messages[rng.integers(len(messages))]
        message.fields.insert(place, copy.deepcopy(more.fields[rng.integers(len(more.fields))]))
    return f"{chosen} field {part.number}: {change}"


CHANGES = [
    "twice", "twice and changed", "far behind", "wire type", "twice with another wire type", "unknown field", "other order", "left out",
    "changed", "other number", "in two parts", "too long", "from elsewhere",
]  # fmt: skip


def name_in(rng: np.random.Generator, root: Message, wire: int) -> bytes:
    """The name of a tensor or value, one that fits if the size is fixed."""
    fields = {"tensor": (8,), "value": (1,), "node": (1, 2)}
    names = [f.value for m in root.all() if m.kind in fields for f in m.fields if f.number in fields[m.kind]]
    names = sorted({name for name in names if isinstance(name, bytes)})
    fitting = [name for name in names if len(name) == {FIXED32: 4, FIXED64: 8}.get(wire, len(name))]
    names = fitting or names or [b"abcd"]
    return names[rng.integers(len(names))]


def alter(rng: np.random.Generator, part: Field) -> None:
    if isinstance(part.value, int):
        part.value = (
            INTEGERS[rng.integers(len(INTEGERS))]
            if rng.random() < 0.7
            else part.value ^ (1 << int(rng.integers(0, 34)))
        )
    elif isinstance(part.value, Message):
        if part.value.fields:
            some = part.value.fields[rng.integers(len(part.value.fields))]
            alter(rng, some)
    elif part.value:
        data = bytearray(part.value)
        choice = rng.integers(4)
        if choice == 0:
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        elif choice == 1:
            data = data[: int(rng.integers(len(data)))]
        elif choice == 2:
            data += bytes(rng.integers(0, 256, 4, dtype=np.uint8))
        else:
            number = np.frombuffer(rng.normal(0, 1, 1).astype(np.float32).tobytes(), np.uint8)
            at = int(rng.integers(0, max(1, len(data) // 4))) * 4
            data[at : at + 4] = number.tobytes()
        part.value = bytes(data)
