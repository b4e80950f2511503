"""Constant subgraphs, as exporters leave them around Pad and Reshape, computed while reading.

Any operation can be computed from constants, so none is listed as allowed. Instead everything is asked how large its
result will be, by onnx's own rules of shapes, and how much work it is: a file of a few bytes can ask for any amount.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from lingraft.errors import LingraftError

#: Numbers that a file may have computed from constants, in all.
MAX_NUMBERS = 1 << 26

#: Steps that computing them may take, in all: about as many nanoseconds.
MAX_WORK = 1e10

#: Only constants up to this size can say of what shape the result of an operation is.
_TELLING = 64

_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}

#: Operations that do a few things to each number; all others are taken for slow ones.
_BRIEF = {
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Exp",
    "Expand", "Flatten", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log",
    "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceL1", "ReduceL2",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reshape", "Shape", "Sign",
    "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip


class Folder:
    """Computes constants from constants, for one file of operator set `opset`."""

    def __init__(self, opset: int):
        self.opset = opset
        self.numbers, self.work = 0, 0.0

    def fold(self, node: Any, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """The outputs of a node all of whose inputs are constants (None: an optional input left out)."""
        if node.op_type in _RANDOM or (node.op_type == "Dropout" and len(inputs) > 2 and np.any(inputs[2])):
            raise LingraftError("it makes random numbers, so that the network is not always the same.")
        if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
            raise LingraftError("loops and branches are not supported, even on constants.")
        given = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
        outputs = [name for name in node.output if name]
        self._spend(node, list(given.values()), self._sizes(node, given, outputs))
        # as a graph: for a bare node the evaluator would take the newest operator set
        results: Any = ReferenceEvaluator(_alone(node, given, outputs), opsets={"": self.opset}).run(None, given)
        found = dict(zip(outputs, (np.asarray(result) for result in results), strict=True))
        return [found.get(name, np.zeros(0)) for name in node.output]

    def _sizes(self, node: Any, given: dict[str, np.ndarray], outputs: list[str]) -> list[int]:
        """How many numbers each output will have."""
        graph = _alone(node, given, outputs)
        for value, (name, array) in zip(graph.input, given.items(), strict=True):
            value.CopyFrom(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            )
            if array.size <= _TELLING:
                graph.initializer.append(numpy_helper.from_array(array, name))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        sizes = []
        for value in inferred.graph.output:
            kind = value.type.tensor_type
            if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim):
                raise LingraftError("the size of what it makes depends on the numbers that it is given.")
            sizes.append(math.prod(dim.dim_value for dim in kind.shape.dim))
        return sizes

    def _spend(self, node: Any, inputs: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
        made, read = sum(sizes), sum(array.size for array in inputs)
        if node.op_type in _BRIEF:
            work = 4.0 * (made + read)
        elif node.op_type in ("MatMul", "Gemm"):
            work = made * max([1, *inputs[0].shape]) / 8
        else:  # the evaluator does many of them in plain Python
            work = made * (1e5 + 1e3 * read) + 1e3 * read
        self.numbers, self.work = self.numbers + made, self.work + work
        if self.numbers > MAX_NUMBERS or self.work > MAX_WORK:
            raise LingraftError(f"it makes a constant of {made:,} numbers, which is too many to compute.")


def _alone(node: Any, inputs: dict[str, np.ndarray], outputs: list[str]) -> Any:
    """A graph of this node."""
    ends = [helper.make_empty_tensor_value_info(name) for name in (*inputs, *outputs)]
    return helper.make_graph([node], "constant", ends[: len(inputs)], ends[len(inputs) :])
