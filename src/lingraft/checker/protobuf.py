"""Just enough of the protobuf wire format to read an ONNX file, without the onnx package, and without guessing.

A message is a sequence of (field number, wire type, value). What a field may be is written down below, message by
message, after onnx.proto. Other parsers keep the last of several values of a field that may occur once, skip what has
a wire type that they do not expect, and ignore fields that they do not know; a file that relies on any of this could
mean one thing here and another where it runs, so it is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lingraft.checker.weight_files import WeightFiles
from lingraft.errors import LingraftError

#: A file with more messages (nodes, attributes, tensors …) or fields is not read, nor a longer list of integers.
MAX_MESSAGES, MAX_FIELDS, MAX_INTEGERS = 1 << 17, 1 << 19, 1 << 20

#: Dimensions of a tensor at most.
MAX_RANK = 16

#: TensorProto.DataType: element type and the field that holds the numbers if `raw_data` does not.
_TYPES: dict[int, tuple[str, int]] = {
    1: ("<f4", 4), 11: ("<f8", 10), 7: ("<i8", 7), 6: ("<i4", 5), 9: ("?", 5), 3: ("<i1", 5), 2: ("<u1", 5),
}  # fmt: skip

#: What a field holds → the wire types that say so. Numbers that may repeat may also come packed, as bytes.
_WIRE = {
    "integer": (0,), "integers": (0, 2), "float": (5,), "floats": (5, 2), "doubles": (1, 2),
    "text": (2,), "texts": (2,), "bytes": (2,), "message": (2,), "messages": (2,),
    # read by nobody here, and without meaning for what a network computes: names, comments, shapes along the way
    "note": (2,), "notes": (2,), "note integer": (0,),
}  # fmt: skip
_REPEATED = ("integers", "floats", "doubles", "texts", "messages", "notes")

#: Message → field number → what it holds. Fields that are not here are refused.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {1: "integer", 2: "note", 3: "note", 4: "note", 5: "note integer", 6: "note", 7: "message", 8: "messages",
              14: "notes"},  # 20 training, 25 functions, 26 configuration
    "operator set": {1: "text", 2: "integer"},
    "graph": {1: "messages", 2: "note", 5: "messages", 10: "note", 11: "messages", 12: "messages", 13: "notes",
              16: "notes"},  # 14 quantization, 15 sparse weights
    "node": {1: "texts", 2: "texts", 3: "note", 4: "text", 5: "messages", 6: "note", 7: "text", 9: "notes"},
    "attribute": {1: "text", 2: "float", 3: "integer", 4: "text", 5: "message", 7: "floats", 8: "integers",
                  13: "note", 20: "integer"},  # 6 graph, 9 strings, 10 tensors, 21 name of a function's attribute
    "tensor": {1: "integers", 2: "integer", 4: "floats", 5: "integers", 7: "integers", 8: "text", 9: "bytes",
               10: "doubles", 12: "note", 13: "messages", 14: "integer", 16: "notes"},  # 3 segment
    "entry": {1: "text", 2: "text"},
    "value": {1: "text", 2: "message", 3: "note", 4: "notes"},
    "type": {1: "message", 6: "note"},  # 4 sequence, 5 map, 8 sparse, 9 optional
    "tensor type": {1: "integer", 2: "message"},
    "shape": {1: "messages"},
    "dimension": {1: "integer", 2: "note", 3: "note"},
}  # fmt: skip


class Message:
    """The fields of a message of the given kind, as they stand: integers for varints, bytes for everything else."""

    def __init__(self, data: bytes, kind: str, budget: "list[int] | None" = None):
        self.kind, self.what = kind, f"a {kind}"
        self.fields: dict[int, list[tuple[int, Any]]] = {}
        self.budget = [MAX_MESSAGES, MAX_FIELDS] if budget is None else budget
        self.budget[0] -= 1
        for number, wire, value in _wired(data, self.what):
            self.budget[1] -= 1
            if min(self.budget) < 0:
                raise LingraftError(f"the file has more than {MAX_MESSAGES:,} parts, or {MAX_FIELDS:,} fields of them")
            holds = _FIELDS[kind].get(number)
            if holds is None:
                raise LingraftError(f"{self.what} has a field {number}, whose meaning is not known here")
            if wire not in _WIRE[holds]:
                raise LingraftError(f"{self.what} has field {number} with wire type {wire}, which real readers skip")
            values = self.fields.setdefault(number, [])
            if values and holds not in _REPEATED:
                raise LingraftError(f"{self.what} has field {number} more than once")
            values.append((wire, value))

    def has(self, number: int) -> bool:
        """Whether the field is there."""
        return number in self.fields

    def _one(self, number: int) -> Any:
        return self.fields[number][0][1]

    def integer(self, number: int, default: int = 0) -> int:
        """A signed integer."""
        return _signed(self._one(number)) if self.has(number) else default

    def float(self, number: int) -> float:
        """A float32 number, which must be there and finite."""
        if not self.has(number):
            raise LingraftError(f"{self.what} has no number")
        value = float(np.frombuffer(self._one(number), "<f4")[0])
        if not np.isfinite(value):
            raise LingraftError(f"{self.what} is NaN or infinite")
        return value

    def bytes(self, number: int) -> bytes:
        """Bytes, which must be there."""
        return bytes(self._one(number))

    def text(self, number: int) -> str:
        """A string, empty if it is not there."""
        return _text(self._one(number), self.what) if self.has(number) else ""

    def texts(self, number: int) -> list[str]:
        """All strings of a repeated field."""
        return [_text(value, self.what) for _, value in self.fields.get(number, [])]

    def message(self, number: int, kind: str) -> "Message":
        """A message, empty if it is not there."""
        return Message(self._one(number) if self.has(number) else b"", kind, self.budget)

    def messages(self, number: int, kind: str) -> "Iterator[Message]":
        """All messages of a repeated field."""
        return (Message(value, kind, self.budget) for _, value in self.fields.get(number, []))

    def integers(self, number: int) -> list[int]:
        """All integers of a repeated field, packed or not."""
        result: list[int] = []
        for wire, value in self.fields.get(number, []):
            position = 0
            while wire == 2 and position < len(value):
                item, position = _varint(value, position, self.what)
                result.append(_signed(item))
                if len(result) > MAX_INTEGERS:
                    break
            if wire == 0:
                result.append(_signed(value))
            if len(result) > MAX_INTEGERS:
                raise LingraftError(f"{self.what} has a list of more than {MAX_INTEGERS:,} integers")
        return result

    def numbers(self, number: int, dtype: str) -> np.ndarray:
        """All floating-point numbers of a repeated field, packed or not."""
        data = b"".join(value for _, value in self.fields.get(number, []))
        if len(data) % np.dtype(dtype).itemsize:
            raise LingraftError(f"{self.what} is cut short")
        return np.frombuffer(data, dtype)


def _wired(data: bytes, what: str) -> Iterator[tuple[int, int, Any]]:
    """Field number, wire type and value of everything in a message."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position, what)
        number, wire = key >> 3, key & 7
        if key >= 1 << 32 or wire not in (0, 1, 2, 5):
            raise LingraftError(f"{what} is damaged: field {number} with wire type {wire}")
        if wire == 0:
            value, position = _varint(data, position, what)
            yield number, wire, value
            continue
        length = 8 if wire == 1 else 4
        if wire == 2:
            length, position = _varint(data, position, what)
        if length > len(data) - position:
            raise LingraftError(f"{what} is cut short")
        yield number, wire, data[position : position + length]
        position += length


def _varint(data: bytes, position: int, what: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise LingraftError(f"{what} is cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    if byte >= 0x80 or value >= 1 << 64:
        raise LingraftError(f"{what} is damaged: an integer of more than 64 bits")
    return value, position


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:  # two such names could look the same
        raise LingraftError(f"{what} has a name that is not UTF-8") from error


def tensor(message: Message, beside: WeightFiles | None = None) -> np.ndarray:
    """The array of a TensorProto: dims=1, data_type=2, name=8, raw_data=9, external_data=13, data_location=14."""
    what = message.what = f"tensor {message.text(8)!r}"
    dims, kind = message.integers(1), message.integer(2)
    if kind not in _TYPES:
        raise LingraftError(f"{what} has element type {kind}, which is not supported")
    dtype, place = _TYPES[kind]
    held = [number for number in (4, 5, 7, 9, 10, 13) if message.has(number)]
    if held not in ([], [9], [13], [place]):
        raise LingraftError(f"{what} has numbers in the fields {held}, more than one or not of its type")
    if message.integer(14) != (13 in held):
        raise LingraftError(f"{what} is at another place than it says")
    if 9 in held or 13 in held:
        raw = message.bytes(9) if 9 in held else _outside(message, beside)
        if len(raw) % np.dtype(dtype).itemsize:
            raise LingraftError(f"{what} has {len(raw)} bytes, not a whole number of numbers")
        array = np.frombuffer(raw, np.uint8 if dtype == "?" else dtype)
    elif place in (5, 7):
        array = np.array(message.integers(place), dtype=np.int64)
    else:
        array = message.numbers(place, dtype)
    if min(dims, default=1) < 0 or len(dims) > MAX_RANK or array.size != _product(dims):
        raise LingraftError(f"{what} has {array.size} numbers for the dimensions {dims[: MAX_RANK + 1]}")
    if not array.size and len(dims) != 1:  # lists of integers may be empty; everything else is about nothing
        raise LingraftError(f"{what} is empty, with the dimensions {dims}")
    exact = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(exact, array):
        raise LingraftError(f"{what} holds integers that its type does not have")
    if exact.dtype.kind == "f" and not np.isfinite(exact).all():
        raise LingraftError(f"{what} holds NaN or infinity")
    return exact.reshape(dims)


def _outside(message: Message, beside: WeightFiles | None) -> memoryview:
    """The bytes of a tensor that is in another file; its entries have key=1 and value=2."""
    if beside is None:
        raise LingraftError(f"{message.what} is stored outside of the ONNX file, where it cannot be")
    entries = [(entry.text(1), entry.text(2)) for entry in message.messages(13, "entry")]
    if len(dict(entries)) < len(entries):
        raise LingraftError(f"{message.what} says twice where it is")
    return beside.part(dict(entries))


def _product(dims: list[int]) -> int:
    result = 1
    for n in dims:
        result *= n
    return result


@dataclass
class OnnxNode:
    """One node: attributes are int, float, str, list or array."""

    operation: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


@dataclass
class OnnxGraph:
    """The parts of a graph that matter: nodes in order, constants, and inputs with their type and dimensions.

    A dimension is 0 if it is open; the type is that of TensorProto.DataType. `version` is the operator set's.
    """

    version: int
    nodes: list[OnnxNode]
    constants: dict[str, np.ndarray]
    inputs: dict[str, tuple[int, list[int]]]
    outputs: list[str] = field(default_factory=list)


def read_graph(data: bytes, beside: WeightFiles | None = None) -> OnnxGraph:
    """The graph of a ModelProto (graph=7, opset_import=8), with weights of files `beside` it."""
    model = Message(data, "model")
    sets = [o.integer(2) for o in model.messages(8, "operator set") if o.text(1) in ("", "ai.onnx")]
    if len(sets) != 1:
        raise LingraftError("the file does not name one standard operator set")
    graph = model.message(7, "graph")
    constants: dict[str, np.ndarray] = {}
    for message in graph.messages(5, "tensor"):
        array, name = tensor(message, beside), message.text(8)
        if name in constants or not name:
            raise LingraftError(f"there are two tensors {name!r}, or one without a name")
        constants[name] = array
    inputs: dict[str, tuple[int, list[int]]] = {}
    for value in graph.messages(11, "value"):
        kind, name = value.message(2, "type").message(1, "tensor type"), value.text(1)
        if name in inputs or not name:
            raise LingraftError(f"there are two inputs {name!r}, or one without a name")
        dims = [dimension.integer(1) for dimension in kind.message(2, "shape").messages(1, "dimension")]
        inputs[name] = kind.integer(1), dims
    nodes = [_node(message) for message in graph.messages(1, "node")]
    return OnnxGraph(sets[0], nodes, constants, inputs, [o.text(1) for o in graph.messages(12, "value")])


def _node(message: Message) -> OnnxNode:
    """NodeProto: input=1, output=2, op_type=4, attribute=5, domain=7."""
    operation = message.text(4)
    if message.text(7) not in ("", "ai.onnx"):
        raise LingraftError(f"operation {operation} of the set {message.text(7)!r} is not supported")
    attributes: dict[str, Any] = {}
    for attribute in message.messages(5, "attribute"):
        name = attribute.text(1)
        attribute.what = f"attribute {name!r} of {operation}"
        if name in attributes:
            raise LingraftError(f"{operation} has the attribute {name} twice")
        attributes[name] = _attribute(attribute)
    return OnnxNode(operation, message.texts(1), message.texts(2), attributes)


#: AttributeProto.AttributeType → the field of its value.
_VALUE_OF = {1: 2, 2: 3, 3: 4, 4: 5, 6: 7, 7: 8}


def _attribute(message: Message) -> Any:
    """AttributeProto: f=2, i=3, s=4, t=5, floats=7, ints=8, type=20."""
    kind = message.integer(20)
    place = _VALUE_OF.get(kind)
    if place is None:
        raise LingraftError(f"{message.what} has type {kind}, which is not supported")
    # a list may be empty, and then there is nothing of it in the file
    if not {place} - {7, 8} <= message.fields.keys() & set(_VALUE_OF.values()) <= {place}:
        raise LingraftError(f"{message.what} does not have one value, of its type")
    if kind == 1:
        return message.float(2)
    if kind == 2:
        return message.integer(3)
    if kind == 3:
        return message.text(4)
    if kind == 4:
        return tensor(message.message(5, "tensor"))
    if kind == 7:
        return message.integers(8)
    numbers = message.numbers(7, "<f4")
    if not np.isfinite(numbers).all():
        raise LingraftError(f"{message.what} holds NaN or infinity")
    return numbers.tolist()
