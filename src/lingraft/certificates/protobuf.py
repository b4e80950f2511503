"""Just enough of the protobuf wire format to read an ONNX file, without the onnx package.

A message is a sequence of (field number, wire type, value). ONNX's field numbers are in onnx.proto, which is the
specification of the format; those needed here are named where they are read.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lingraft.errors import LingraftError

#: A tensor with more numbers than this is not read.
MAX_NUMBERS = 1 << 28

#: TensorProto.DataType: element type and the field that holds the numbers if `raw_data` does not.
_TYPES: dict[int, tuple[str, int]] = {
    1: ("<f4", 4), 11: ("<f8", 10), 7: ("<i8", 7), 6: ("<i4", 5), 9: ("?", 5), 3: ("<i1", 5), 2: ("<u1", 5),
}  # fmt: skip

Value = int | bytes


class Message:
    """The fields of a message: integers for varints, bytes for everything else. Nothing is interpreted before."""

    def __init__(self, data: bytes, what: str):
        self.what = what
        self.fields: dict[int, list[Value]] = {}
        position = 0
        while position < len(data):
            key, position = _varint(data, position, what)
            number, wire = key >> 3, key & 7
            value: Value
            if wire == 0:
                value, position = _varint(data, position, what)
            else:
                if wire == 2:
                    length, position = _varint(data, position, what)
                elif wire in (1, 5):
                    length = 8 if wire == 1 else 4
                else:
                    raise LingraftError(f"{what} is damaged: wire type {wire}.")
                if length > len(data) - position:
                    raise LingraftError(f"{what} is cut short.")
                value = data[position : position + length]
                position += length
            self.fields.setdefault(number, []).append(value)

    def one(self, number: int, default: Value) -> Any:
        """A field that may occur once. Protobuf would merge several, which no exporter needs: refused."""
        values = self.fields.get(number, [default])
        if len(values) > 1:
            raise LingraftError(f"{self.what} has field {number} more than once.")
        if type(values[0]) is not type(default):
            raise LingraftError(f"{self.what} has a field {number} of the wrong type.")
        return values[0]

    def text(self, number: int) -> str:
        """A string."""
        return str(self.one(number, b""), "utf-8", "replace")

    def texts(self, number: int) -> list[str]:
        """All strings of a repeated field."""
        return [str(value, "utf-8", "replace") for value in self.fields.get(number, []) if isinstance(value, bytes)]

    def messages(self, number: int, what: str) -> "list[Message]":
        """All messages of a repeated field."""
        return [Message(value, what) for value in self.fields.get(number, []) if isinstance(value, bytes)]

    def integers(self, number: int) -> list[int]:
        """All integers of a repeated field, packed or not."""
        result: list[int] = []
        for value in self.fields.get(number, []):
            if isinstance(value, int):
                result.append(_signed(value))
                continue
            position = 0
            while position < len(value):
                item, position = _varint(value, position, self.what)
                result.append(_signed(item))
        return result

    def packed(self, number: int, dtype: str) -> np.ndarray:
        """All fixed-size numbers of a repeated field, packed or not."""
        data = b"".join(value for value in self.fields.get(number, []) if isinstance(value, bytes))
        if len(data) % np.dtype(dtype).itemsize:
            raise LingraftError(f"{self.what} is cut short.")
        return np.frombuffer(data, dtype)


def _varint(data: bytes, position: int, what: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise LingraftError(f"{what} is cut short.")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), position
    raise LingraftError(f"{what} is damaged: an integer without end.")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def tensor(message: Message) -> np.ndarray:
    """The array of a TensorProto: dims=1, data_type=2, name=8, raw_data=9, data_location=14."""
    what = message.what = f"tensor {message.text(8)!r}"
    dims, kind = message.integers(1), message.one(2, 0)
    if message.one(14, 0):
        raise LingraftError(f"{what} is stored outside of the ONNX file. Export the network as a single file.")
    if kind not in _TYPES:
        raise LingraftError(f"{what} has element type {kind}, which is not supported.")
    count = 1
    for n in dims:
        count *= n
        if n < 0 or count > MAX_NUMBERS:
            raise LingraftError(f"{what} has the dimensions {dims}, which is too much.")
    dtype, place = _TYPES[kind]
    if 9 in message.fields:
        raw = message.one(9, b"")
        if len(raw) != count * np.dtype(dtype).itemsize:
            raise LingraftError(f"{what} has {len(raw)} bytes for {count} numbers.")
        array = np.frombuffer(raw, dtype)
    elif place in (5, 7):
        array = np.array(message.integers(place), dtype=np.int64).astype(dtype)
    else:
        array = message.packed(place, dtype)
    if array.size != count:
        raise LingraftError(f"{what} has {array.size} numbers, not {count}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise LingraftError(f"{what} holds NaN or infinity.")
    return array.reshape(dims)


@dataclass
class OnnxNode:
    """One node: attributes are int, float, str, list or array."""

    operation: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


@dataclass
class OnnxGraph:
    """The parts of a graph that matter: nodes in order, constants, and inputs with their dimensions (0 if open)."""

    nodes: list[OnnxNode]
    constants: dict[str, np.ndarray]
    inputs: dict[str, list[int]]
    outputs: list[str] = field(default_factory=list)


def read_graph(data: bytes) -> OnnxGraph:
    """The graph of a ModelProto (graph=7, opset_import=8)."""
    model = Message(data, "the ONNX file")
    sets = [o for o in model.messages(8, "an operator set") if o.text(1) in ("", "ai.onnx")]
    graph = Message(model.one(7, b""), "the graph")
    if len(sets) != 1 or 15 in graph.fields:
        raise LingraftError("the ONNX file has no single standard operator set, or sparse weights.")
    constants: dict[str, np.ndarray] = {}
    for message in graph.messages(5, "a tensor"):
        array, name = tensor(message), message.text(8)
        if name in constants:
            raise LingraftError(f"there are two tensors {name!r}.")
        constants[name] = array
    inputs = {}
    for value in graph.messages(11, "an input"):
        kind = Message(Message(value.one(2, b""), "a type").one(1, b""), "a tensor type")
        shape = Message(kind.one(2, b""), "a shape")
        inputs[value.text(1)] = [_signed(d.one(1, 0)) for d in shape.messages(1, "a dimension")]
    nodes = [_node(message) for message in graph.messages(1, "a node")]
    return OnnxGraph(nodes, constants, inputs, [o.text(1) for o in graph.messages(12, "an output")])


def _node(message: Message) -> OnnxNode:
    """NodeProto: input=1, output=2, op_type=4, attribute=5, domain=7."""
    operation = message.text(4)
    if message.text(7) not in ("", "ai.onnx"):
        raise LingraftError(f"operation {operation} of the set {message.text(7)!r} is not supported.")
    attributes: dict[str, Any] = {}
    for attribute in message.messages(5, f"an attribute of {operation}"):
        name = attribute.text(1)
        if name in attributes:
            raise LingraftError(f"{operation} has the attribute {name} twice.")
        attributes[name] = _attribute(attribute)
    return OnnxNode(operation, message.texts(1), message.texts(2), attributes)


def _attribute(message: Message) -> Any:
    """AttributeProto: f=2, i=3, s=4, t=5, floats=7, ints=8, type=20."""
    kind = message.one(20, 0)
    if kind == 1:
        number = message.packed(2, "<f4")
        return float(number[0]) if len(number) == 1 else 0.0
    if kind == 2:
        return _signed(message.one(3, 0))
    if kind == 3:
        return message.text(4)
    if kind == 4:
        return tensor(Message(message.one(5, b""), "a tensor"))
    if kind == 6:
        return message.packed(7, "<f4").tolist()
    if kind == 7:
        return message.integers(8)
    raise LingraftError(f"attribute {message.text(1)} of type {kind} is not supported.")
