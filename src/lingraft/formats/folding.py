"""Constant subgraphs, as exporters leave them around Pad and Reshape, computed while reading."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from lingraft.errors import LingraftError

#: A constant with more numbers than this is not computed: the file is damaged or hostile.
MAX_NUMBERS = 1 << 28

_ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Equal", "Where", "Floor", "Ceil", "Expand"}
_REARRANGING = {
    "Cast", "Concat", "Constant", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip
FOLDABLE = _ELEMENTWISE | _REARRANGING | {"ConstantOfShape", "Gather"}


def fold(node: Any, inputs: Sequence[np.ndarray | None], opset: int) -> np.ndarray:
    """The output of a node all of whose inputs are constants (None: an optional input left out)."""
    size = _output_size(node, [array for array in inputs if array is not None])
    if size > MAX_NUMBERS:
        raise LingraftError(f"it makes a constant of {size:,} numbers, which is too many.")
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if name}
    # as a graph: for a bare node the evaluator would take the newest operator set
    inputs_and_output = [helper.make_empty_tensor_value_info(name) for name in (*feeds, node.output[0])]
    graph = helper.make_graph([node], "constant", inputs_and_output[:-1], inputs_and_output[-1:])
    outputs: Any = ReferenceEvaluator(graph, opsets={"": opset}).run(None, feeds)
    return np.asarray(outputs[0])


def _output_size(node: Any, inputs: Sequence[np.ndarray]) -> int:
    """Upper bound of the numbers a foldable node makes, known before they are made."""
    if node.op_type == "ConstantOfShape":
        return math.prod(int(n) for n in inputs[0].ravel())
    if node.op_type == "Expand":
        return math.prod(np.broadcast_shapes(inputs[0].shape, tuple(int(n) for n in inputs[1].ravel())))
    if node.op_type in _ELEMENTWISE:
        return math.prod(np.broadcast_shapes(*(array.shape for array in inputs)))
    if node.op_type == "Gather":
        return inputs[0].size * inputs[1].size
    return sum(array.size for array in inputs)
