"""Several inputs of an ONNX file as one: a vector of all their values, in the order of the file."""

import math
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from lingraft.errors import LingraftError


class FileInput(NamedTuple):
    """An input of a file: its dimensions, where an open first one is 0, and the number of its type in ONNX."""

    name: str
    dims: tuple[int, ...]
    kind: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions for one input, where an open one is 1."""
        return tuple(max(dim, 1) for dim in self.dims)


def file_inputs(graph: Any) -> list[FileInput]:
    """The inputs of a graph that are no weights, in order; those that lingraft cannot take are a LingraftError."""
    weights, found = {tensor.name for tensor in graph.initializer}, []
    for value in graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        if kind.elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE):
            raise LingraftError(
                "the input of the network is not of type float32 or float64. Export it with one of these."
            )
        dims = tuple(dim.dim_value for dim in kind.shape.dim)
        if not dims or min(dims[1:], default=dims[0]) < 1 or dims[0] < 0:
            raise LingraftError(
                f"the input of the network has the dimensions {list(dims)} (0 for an open one)."
                " Export it with a batch dimension first and all others fixed."
            )
        found.append(FileInput(value.name, dims, kind.elem_type))
    return found


def join_inputs(model: Any) -> None:
    """Give a model with several inputs a single one, (1, n), from which the others are taken; in place."""
    graph = model.graph
    inputs = file_inputs(graph)
    kinds = {given.kind for given in inputs}
    if len(kinds) > 1:
        raise LingraftError("the inputs of the network are of different types. Export it with one of them.")
    names = {name for node in graph.node for name in (*node.input, *node.output)} | {value.name for value in inputs}
    whole = next(name for name in (f"inputs{i}" for i in range(len(names) + 1)) if name not in names)
    nodes, place = [], 0
    for number, given in enumerate(inputs):
        places, shape, part = (f"{whole}.{what}{number}" for what in ("places", "shape", "part"))
        size = math.prod(given.shape)
        graph.initializer.append(numpy_helper.from_array(np.arange(place, place + size), places))
        graph.initializer.append(numpy_helper.from_array(np.array(given.shape), shape))
        nodes.append(helper.make_node("Gather", [whole, places], [part], axis=1))
        nodes.append(helper.make_node("Reshape", [part, shape], [given.name]))
        place += size
    others = [value for value in graph.input if value.name not in {given.name for given in inputs}]
    del graph.input[:]
    graph.input.extend([helper.make_tensor_value_info(whole, kinds.pop(), [1, place]), *others])
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *kept])
