"""Changes of ONNX files: bytes, the wire format, and what the graph says."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import wire
from chance import Rng, Skip, pick
from computed_constants import compute_constant
from graph_changes import (
    add_attribute,
    balanced_numbers,
    change_attribute,
    change_connections,
    change_operation,
    change_opset,
    change_value,
    change_weights,
    damage_numbers,
    only_constants,
    other_type,
    same_padding,
    shadow,
    two_values,
)
from inserted_nodes import insert_node

# --- bytes and fields -------------------------------------------------------------------------------------------------


def damage_bytes(rng: Rng, content: bytes) -> tuple[bytes, str]:
    """Some bytes changed, lost, doubled or inserted."""
    changed = bytearray(content)
    names = []
    for _ in range(int(rng.integers(1, 4))):
        if not changed:
            break
        place = int(rng.integers(len(changed)))
        end = place + int(rng.integers(1, 30))
        kind = pick(rng, ["flip", "flip", "byte", "byte", "cut", "drop", "double", "splice", "insert", "number"])
        names.append(kind)
        if kind == "flip":
            changed[place] ^= 1 << int(rng.integers(8))
        elif kind == "byte":
            changed[place] = int(rng.integers(256))
        elif kind == "cut":
            del changed[place:]
        elif kind == "drop":
            del changed[place:end]
        elif kind == "double":
            changed[place:place] = changed[place:end]
        elif kind == "splice":
            source = int(rng.integers(len(changed)))
            changed[place:end] = changed[source : source + end - place]
        elif kind == "insert":
            changed[place:place] = bytes(rng.integers(0, 256, int(rng.integers(1, 12)), dtype=np.uint8))
        else:
            changed[place : place + 8] = int(pick(rng, wire.INTEGERS)).to_bytes(8, "little")[: int(pick(rng, [4, 8]))]
    return bytes(changed), " ".join(names)


def damage_fields(rng: Rng, content: bytes) -> tuple[bytes, str]:
    """The wire format bent."""
    if rng.random() < 0.4:
        try:
            return _special_fields(rng, content)
        except Skip:
            pass
    root = wire.parse(content, "model")
    names = [wire.bend(rng, root) for _ in range(int(rng.choice([1, 1, 1, 2])))]
    return wire.pack(root), ", ".join(names)


def _special_fields(rng: Rng, content: bytes) -> tuple[bytes, str]:
    """Fields of numbers and names said twice, or with another wire type."""
    root = wire.parse(content, "model")
    everything = root.all()
    nodes = [m for m in everything if m.kind == "node"]
    tensors = [m for m in everything if m.kind == "tensor"]
    attributes = [m for m in everything if m.kind == "attribute"]
    choice = int(rng.integers(8))
    if choice == 0:  # one more input by a name that protobuf does not read
        size = int(pick(rng, [wire.FIXED32, wire.FIXED32, wire.FIXED64, wire.VARINT]))
        short = [
            n
            for n in nodes
            if any(f.number == 4 and f.value in (b"Gemm", b"Conv", b"Pad", b"Dropout") for f in n.fields)
        ]
        node = pick(rng, short or nodes) if rng.random() < 0.7 else pick(rng, nodes)
        at = max([i for i, f in enumerate(node.fields) if f.number == 1], default=-1) + 1
        name = wire.name_in(rng, root, size)
        node.fields.insert(at, wire.Field(1, size, name))
        return wire.pack(root), "an input of another wire type"
    if choice == 1:  # numbers twice, of which protobuf takes the last, or all
        attribute = pick(rng, [a for a in attributes if any(f.number in (2, 3, 7, 8) for f in a.fields)])
        at, part = pick(rng, [(i, f) for i, f in enumerate(attribute.fields) if f.number in (2, 3, 7, 8)])
        other = wire.Field(part.number, part.wire, part.value)
        wire.alter(rng, other)
        attribute.fields.insert(at + int(rng.integers(2)), other)
        return wire.pack(root), "a number of an attribute twice"
    if choice in (2, 3):  # the numbers of a tensor in two places or with other wire types
        tensor = pick(rng, [t for t in tensors if any(f.number in (9, 4) for f in t.fields)])
        numbers = next(f for f in tensor.fields if f.number in (9, 4))
        noise = rng.normal(0, 1, len(numbers.value) // 4 if isinstance(numbers.value, bytes) else 1).astype(np.float32)
        number = int(pick(rng, [4, 9, 4, 9, 5, 7, 10]))
        if rng.random() < 0.5 and numbers.number == 9:
            numbers.number = 4  # as float_data, which is as good
            number = int(pick(rng, [9, 9, 4]))
        size = int(pick(rng, [wire.BYTES, wire.FIXED32, wire.FIXED64, wire.VARINT]))
        place = int(rng.integers(len(tensor.fields) + 1))
        tensor.fields.insert(place, wire.Field(number, size, noise.tobytes()))
        return wire.pack(root), "numbers of a tensor in two ways"
    if choice == 4:  # dimensions packed, or of another wire type
        tensor = pick(rng, tensors)
        dims = [f for f in tensor.fields if f.number == 1]
        tensor.fields = [f for f in tensor.fields if f.number != 1]
        packed = b"".join(wire.varint(f.value) for f in dims if isinstance(f.value, int))
        if rng.random() < 0.5 and len(dims) > 1:
            dims = [dims[i] for i in rng.permutation(len(dims))]
            tensor.fields += dims
        else:
            tensor.fields.insert(0, wire.Field(1, wire.BYTES, packed))
            if rng.random() < 0.5:
                tensor.fields.insert(0, wire.Field(1, int(pick(rng, [wire.FIXED32, wire.FIXED64])), 1))
        return wire.pack(root), "dimensions packed or in another order"
    if choice == 5:  # the type of an attribute
        attribute = pick(rng, attributes)
        for part in attribute.fields:
            if part.number == 20:
                part.value = int(pick(rng, [0, 1, 2, 3, 4, 6, 7, 8, 2**32 + 1, 2**32 + 2, 2**32 + 7]))
        return wire.pack(root), "the type of an attribute"
    if choice == 6:  # an integer beyond what its field can hold
        message = pick(rng, [m for m in everything if any(f.wire == wire.VARINT for f in m.fields)])
        part = pick(rng, [f for f in message.fields if f.wire == wire.VARINT])
        part.value = part.value + int(pick(rng, [2**32, 2**33, 2**63, 2**64]))
        return wire.pack(root), "an integer that is too large"
    graph = next(m for m in everything if m.kind == "graph")
    part = pick(rng, [f for f in root.fields if f.value is graph])
    first, second = wire.Message("graph"), wire.Message("graph")
    for each in graph.fields:
        (first if rng.random() < 0.5 else second).fields.append(each)
    part.value = first
    root.fields.append(wire.Field(7, wire.BYTES, second))
    return wire.pack(root), "the graph in two parts"


#: Kinds of changes of what a graph says, in the words of the table.
GRAPH: dict[str, list[Callable[[Rng, Any], str]]] = {
    "attributes": [change_attribute, change_attribute, add_attribute, same_padding],
    "operations and versions": [change_operation, change_opset, change_opset],
    "tensors": [change_weights, change_weights, change_weights, damage_numbers, balanced_numbers],
    "types and shapes": [change_value, change_value, other_type, only_constants, two_values],
    "connections and names": [change_connections, change_connections, shadow],
    "nodes inserted": [insert_node],
    "constants computed": [compute_constant],
}


def damage_graph(rng: Rng, content: bytes, kind: str) -> tuple[bytes, str]:
    """One to three changes of a kind; the last may be of any kind."""
    model = onnx.load_model_from_string(content)
    names = []
    for attempt in range(int(pick(rng, [1, 1, 1, 2, 2, 3]))):
        changes = GRAPH[kind] if attempt == 0 or rng.random() < 0.6 else pick(rng, GRAPH.values())
        for _ in range(20):
            try:
                names.append(pick(rng, changes)(rng, model))
                break
            except (
                Skip,
                ValueError,
                TypeError,
                IndexError,
                OverflowError,
            ):  # cannot be written, at least not like this
                continue
        if names and names[-1].startswith(("extreme", "one operation")):
            break
    return model.SerializeToString(), ", ".join(names)
