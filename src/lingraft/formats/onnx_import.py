"""Reading a network from an ONNX file."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper
from torch import fx

from lingraft.errors import LingraftError
from lingraft.formats.folding import FOLDABLE, fold
from lingraft.formats.grafted_sites import restore_grafted_sites
from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.layer_biases import absorb_biases
from lingraft.formats.onnx_file import read_model, reason
from lingraft.formats.onnx_node import OnnxNode, Value
from lingraft.formats.onnx_operations import translate
from lingraft.formats.onnx_patterns import drop_parts
from lingraft.formats.runtime import IMPORT_TOLERANCE, Session, disagreement, random_inputs

#: Sizes of the inputs on which the network read is compared with onnxruntime: each bends other activations.
_SCALES = (1.0, 10.0, 100.0)


def load_onnx(path: str | Path) -> fx.GraphModule:
    """The network of an ONNX file as a module of plain torch layers, in eval mode.

    It takes batches of any size, can be traced and grafted, and has the attribute `input_shape`, the shape of one input
    without the batch (torch.fx does not carry it over to copies). Grafted sites are GraftedActivations. Its outputs
    were compared with onnxruntime's. A file that cannot be read, or uses an operation that lingraft does not know, is a
    LingraftError.
    """
    return read_network(path)[0]


def read_network(path: str | Path) -> tuple[Any, Session, int]:
    """The module of `load_onnx`, the same network in onnxruntime, and the batch size that the file fixes, else 1."""
    model = read_model(path)
    try:
        module, batch = _translate(model)
        session = Session(model)
        inputs = random_inputs(module.input_shape, batch)
        difference = max(disagreement(session, module, scale * inputs, batch) for scale in _SCALES)
    except LingraftError as error:
        raise LingraftError(f"{path}: {error}") from error
    if difference > IMPORT_TOLERANCE:
        raise LingraftError(
            f"{path}: the network read differs from onnxruntime's by {difference:.1e} of its largest output."
            " Please report the file."
        )
    return module, session, batch


def _translate(model: Any) -> tuple[Any, int]:
    """The module and the batch size that the file fixes (1 if it leaves it open)."""
    graph = model.graph
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    constants = {tensor.name: _weights(tensor) for tensor in graph.initializer}
    batch, input_shape, name = _input(graph, constants)
    if len(graph.output) != 1:
        raise LingraftError(f"the network has {len(graph.output)} outputs. Export it with one.")
    builder = GraphBuilder(input_shape, batch)
    values: dict[str, Value] = {**constants, name: builder.input}
    for proto in graph.node:
        values[proto.output[0]] = _translate_node(builder, proto, values, opset)
    output = values.get(graph.output[0].name)
    if not isinstance(output, fx.Node):
        raise LingraftError("the output of the network does not depend on its input.")
    builder.graph.output(output)
    drop_parts(builder)
    absorb_biases(builder)
    restore_grafted_sites(builder)
    module: Any = builder.finish()
    module.input_shape = input_shape
    return module, batch


def _input(graph: Any, constants: dict[str, np.ndarray]) -> tuple[int, tuple[int, ...], str]:
    """Batch size, shape without the batch, and name of the one input."""
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise LingraftError(f"the network has {len(inputs)} inputs. Export it with one.")
    kind = inputs[0].type.tensor_type
    if kind.elem_type != 1:
        raise LingraftError("the input of the network is not of type float32. Export it in single precision.")
    batch, *shape = [dim.dim_value for dim in kind.shape.dim] or [0]
    if not shape or min(shape) < 1 or batch < 0:
        raise LingraftError(
            f"the input of the network has the dimensions {[batch, *shape]} (0 for an open one)."
            " Export it with a batch dimension first and all others fixed."
        )
    return batch or 1, tuple(shape), inputs[0].name


def _translate_node(builder: GraphBuilder, proto: Any, values: dict[str, Value], opset: int) -> Value:
    unknown = [name for name in proto.input if name and name not in values]
    if unknown:  # a second output of another node
        raise LingraftError(f"{proto.op_type} node {proto.name!r} takes {unknown[0]!r}, which cannot be read.")
    inputs = [values[name] if name else None for name in proto.input]
    node = OnnxNode(proto, inputs)
    if proto.domain not in ("", "ai.onnx"):
        raise LingraftError(f"{node.title} is of the custom operation set {proto.domain!r}, which is not supported.")
    # A damaged file makes numpy, onnx and torch raise all kinds of errors here; each becomes one that names the node.
    try:
        if node.operation == "Shape" and isinstance(inputs[0], fx.Node):
            shape = np.array(builder.shape(inputs[0]), dtype=np.int64)
            return shape[node.attribute("start", 0) : node.attribute("end", len(shape))]
        known = [value for value in inputs if not isinstance(value, fx.Node)]
        if node.operation in FOLDABLE and len(known) == len(inputs):
            return fold(proto, known, opset)
        value = translate(builder, node)
    except LingraftError as error:
        raise error if node.title in str(error) else LingraftError(f"{node.title}: {error}") from error
    except Exception as error:
        raise LingraftError(f"{node.title} cannot be read ({reason(error)}). Export the network again.") from error
    node.done()
    return value


def _weights(tensor: Any) -> np.ndarray:
    # what a tensor with the wrong number of bytes makes onnx and numpy raise is not documented
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:
        raise LingraftError(
            f"the weights {tensor.name!r} cannot be read ({error}). Export the network again."
        ) from error
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise LingraftError(f"the weights {tensor.name!r} hold NaN or infinity. Train the network again.")
    return array
