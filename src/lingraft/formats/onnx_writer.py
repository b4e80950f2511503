"""An ONNX graph under construction."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.version import __version__

#: Old enough for the readers of other verifiers, new enough for everything that is written here.
OPSET = 13
IR_VERSION = 7
#: Goes with all operator sets up to 20.
LATER_IR_VERSION = 9


class Value:
    """Something computed from the input: its shape for a batch of two, and its name in the ONNX graph.

    The node that computes it is written when its name is first asked for, so that the next one can absorb it.
    """

    def __init__(self, shape: Sequence[int], write: Callable[[], str]):
        self.shape = tuple(shape)
        self._write = write
        self._name: str | None = None

    @property
    def name(self) -> str:
        """Name in the ONNX graph."""
        if self._name is None:
            self._name = self._write()
        return self._name


def named(shape: Sequence[int], name: str) -> Value:
    """A value that is written already."""
    return Value(shape, lambda: name)


class OnnxWriter:
    """Collects nodes and weights; `batch` is the size written for the batch dimension, -1 for an open one."""

    def __init__(self, batch: int):
        self.batch = batch
        #: the operator set, raised for operations that came later
        self.opset = OPSET
        #: what is written is named after this part of the model
        self.scope = ""
        self._nodes: list[Any] = []
        self._weights: dict[str, np.ndarray] = {}

    def weight(self, name: str, tensor: Tensor) -> str:
        """Add a float32 constant and give its name."""
        return self._constant(name, tensor.detach().cpu().numpy().astype(np.float32))

    def integers(self, name: str, numbers: Sequence[int]) -> str:
        """Add an int64 vector and give its name."""
        return self._constant(name, np.array(numbers, dtype=np.int64))

    def node(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and give the name of its output."""
        name = f"{self.scope}/{operation}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, list(inputs), [name], name=name, **attributes))
        return name

    def value(self, shape: Sequence[int], operation: str, *inputs: str, **attributes: Any) -> Value:
        """Add a node and give its output."""
        return named(shape, self.node(operation, *inputs, **attributes))

    def model(self, input_shape: Sequence[int], output: Value) -> Any:
        """The `onnx.ModelProto` whose input is `input` and whose output, called `output`, is the given value."""
        last = output.name
        if last == "input":
            raise LingraftError("the model gives its input back; there is nothing to export.")
        for node in self._nodes:
            node.input[:] = ["output" if name == last else name for name in node.input]
            node.output[:] = ["output" if name == last else name for name in node.output]
        batch = "batch" if self.batch == -1 else self.batch
        graph = helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, *input_shape])],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, *output.shape[1:]])],
            [numpy_helper.from_array(array, name) for name, array in self._weights.items()],
        )
        return helper.make_model(
            graph,
            producer_name="lingraft",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=IR_VERSION if self.opset == OPSET else LATER_IR_VERSION,
        )

    def _constant(self, name: str, array: np.ndarray) -> str:
        name = unique = f"{self.scope}.{name}"
        number = 1
        while unique in self._weights:
            number += 1
            unique = f"{name}_{number}"
        self._weights[unique] = np.ascontiguousarray(array)
        return unique
