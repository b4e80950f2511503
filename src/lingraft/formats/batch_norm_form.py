"""Scales and shifts as BatchNormalization, for readers that know no arithmetic with constant tensors (Marabou).

x·a + b with constants a and b, one for each value or for each channel, is a BatchNormalization with scale a, bias b,
mean 0, variance 1 and ε 0, over the values laid out as channels.
"""

import math
from typing import Any

import numpy as np
from onnx import helper, numpy_helper, shape_inference


def scales_as_batch_norm(model: Any) -> Any:
    """An `onnx.ModelProto` with the same function (up to the rounding of 1/a where it divides by a)."""
    inferred = shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes: list[Any] = []
    added: dict[str, np.ndarray] = {}
    for node in model.graph.node:
        source, line = _line(node, constants)
        if line is None or len(shapes[source]) < 2:
            nodes.append(node)
            continue
        shape, name = shapes[source], node.output[0]
        scale, shift = (np.broadcast_to(part, (1, *shape[1:])) for part in line)
        per_channel = all(part.strides[axis] == 0 for part in (scale, shift) for axis in range(2, len(shape)))
        length = shape[1] if per_channel else math.prod(shape[1:])
        if per_channel:
            scale, shift = (part.reshape(shape[1], -1)[:, 0] for part in (scale, shift))
        weights = [scale.ravel(), shift.ravel(), np.zeros(length), np.ones(length)]
        names = [f"{name}.{part}" for part in ("scale", "bias", "mean", "variance")]
        added |= dict(zip(names, (np.ascontiguousarray(array, np.float32) for array in weights), strict=True))
        if per_channel:
            nodes.append(helper.make_node("BatchNormalization", [source, *names], [name], name=name, epsilon=0.0))
            continue
        added[f"{name}.shape"] = np.array([-1, *shape[1:]], np.int64)
        nodes += [
            helper.make_node("Flatten", [source], [f"{name}.flat"], name=f"{name}.flat"),
            helper.make_node("BatchNormalization", [f"{name}.flat", *names], [f"{name}.scaled"], epsilon=0.0),
            helper.make_node("Reshape", [f"{name}.scaled", f"{name}.shape"], [name], name=name),
        ]
    used = {name for node in nodes for name in node.input}
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, *(numpy_helper.from_array(array, name) for name, array in added.items())])
    return model


def _line(node: Any, constants: dict[str, np.ndarray]) -> tuple[str, tuple[np.ndarray, np.ndarray] | None]:
    """The value that a node scales or shifts by a constant, and the line in float64; None if it does something else."""
    if node.op_type not in ("Add", "Sub", "Mul", "Div"):
        return "", None
    first, second = node.input
    source, constant = (second, first) if first in constants else (first, second)
    if constant not in constants or (node.op_type == "Div" and constant == first):
        return "", None
    value = constants[constant].astype(np.float64)
    one, zero = np.ones(()), np.zeros(())
    if node.op_type == "Mul":
        return source, (value, zero)
    if node.op_type == "Div":
        return source, (1 / value, zero)
    if node.op_type == "Add":
        return source, (one, value)
    return source, (one, -value) if constant == second else (-one, value)
