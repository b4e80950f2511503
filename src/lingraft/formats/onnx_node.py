"""One ONNX node as the importer sees it: attributes are taken one by one, and none may be left over."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from onnx import helper
from torch import fx

from lingraft.errors import LingraftError

#: What an ONNX name stands for while reading: a constant known now, or a value known when the network runs.
Value = np.ndarray | fx.Node
T = TypeVar("T")


class OnnxNode:
    """Operation, inputs and attributes of a node, and the operator set whose rules it follows."""

    def __init__(self, proto: Any, inputs: Sequence[Value | None], opset: int):
        self.proto, self.opset = proto, opset
        self.operation: str = proto.op_type
        self.title = f"{proto.op_type} node {proto.name or proto.output[0]!r}"
        self.inputs = list(inputs)
        self._attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}

    def attribute(self, name: str, default: T) -> T:
        """Take an attribute; lists come as lists of numbers, strings as str."""
        value = self._attributes.pop(name, default)
        if isinstance(value, bytes):
            value = value.decode()
        return value

    def require(self, name: str, default: Any, *allowed: Any) -> None:
        """Take an attribute of which only some values are supported."""
        value = self.attribute(name, default)
        if value not in allowed:
            raise self.unsupported(f"{name} = {value}")

    def done(self) -> None:
        """Refuse the attributes that nothing took: they would change the meaning."""
        for name, value in self._attributes.items():
            raise self.unsupported(f"attribute {name} = {value}")

    def value(self, index: int) -> fx.Node:
        """Input `index`, which must not be a constant."""
        value = self.optional(index)
        if not isinstance(value, fx.Node):
            raise self.unsupported(f"input {index} that is a constant or missing")
        return value

    def constant(self, index: int) -> np.ndarray:
        """Input `index`, which must be a constant."""
        value = self.optional(index)
        if not isinstance(value, np.ndarray):
            raise self.unsupported(f"input {index} that is not a constant")
        return value

    def optional(self, index: int) -> Value | None:
        """Input `index` or None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def optional_constant(self, index: int) -> np.ndarray | None:
        """Input `index`, which must be a constant, or None if it is left out."""
        return None if self.optional(index) is None else self.constant(index)

    def integers(self, name: str, index: int) -> list[int] | None:
        """A list of integers that older operator sets give as attribute `name`, newer ones as input `index`."""
        given = self.attribute(name, None)
        if given is None:
            array = self.optional_constant(index)
            given = None if array is None else array.ravel()
        return None if given is None else [int(n) for n in given]

    def unsupported(self, what: str) -> LingraftError:
        """The error for something about this node that lingraft cannot read."""
        return LingraftError(f"{self.title}: {what} is not supported. Export the network without it.")
