"""Reading a network from an ONNX file."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, numpy_helper
from torch import fx

from lingraft.errors import LingraftError
from lingraft.formats.folding import Folder
from lingraft.formats.grafted_sites import restore_grafted_sites
from lingraft.formats.graph_builder import GraphBuilder, TooPreciseError
from lingraft.formats.layer_biases import absorb_biases
from lingraft.formats.onnx_file import read_model, reason
from lingraft.formats.onnx_inputs import FileInput, file_inputs, join_inputs
from lingraft.formats.onnx_node import OnnxNode, Value
from lingraft.formats.onnx_operations import translate
from lingraft.formats.onnx_output import select_output
from lingraft.formats.onnx_patterns import drop_parts
from lingraft.formats.runtime import IMPORT_TOLERANCE, Session, disagreement, random_inputs

#: Sizes of the inputs on which the network read is compared with onnxruntime: each bends other activations.
_SCALES = (1.0, 10.0, 100.0)


def load_onnx(path: str | Path) -> fx.GraphModule:
    """The network of an ONNX file as a module of plain torch layers, in eval mode.

    It takes batches of any size, can be traced and grafted, and has the attribute `input_shape`, the shape of one input
    without the batch (torch.fx does not carry it over to copies). Its weights are float32, or float64 if the file takes
    float64 inputs or has numbers that float32 does not hold. Grafted sites are GraftedActivations. Its outputs were
    compared with onnxruntime's. A file that cannot be read, or uses an operation that lingraft does not know, is a
    LingraftError.
    """
    return read_network(path)[0]


def read_network(
    path: str | Path, output: str | int | None = None, joined: bool = False, values: int | None = None
) -> tuple[Any, Session, int]:
    """The module of `load_onnx`, the same network in onnxruntime, and the batch size that the file fixes, else 1.

    `output` is another value than the only output, see `select_output`: then the module is not `whole`. If `joined`,
    several inputs are read as one vector of their values. Where one input is known to have as many `values` as all that
    the file takes, the first dimension is not a batch.
    """
    model, content = read_model(path)
    try:
        part = output is not None and select_output(model, output)
        if part:
            content = model.SerializeToString()
        if joined and len(file_inputs(model.graph)) > 1:
            join_inputs(model)  # onnxruntime has them as they are
        module, batch = _translate(model, values)
        module.whole = not part
        session = Session(content)
        inputs = random_inputs(module.input_shape, batch).to(_dtype(module))
        difference = max(disagreement(session, module, scale * inputs, batch, scale > 1) for scale in _SCALES)
    except LingraftError as error:
        raise LingraftError(f"{path}: {error}") from error
    if difference > IMPORT_TOLERANCE:
        raise LingraftError(
            f"{path}: the network read differs from onnxruntime's by {difference:.1e} of its largest output."
            " Please report the file."
        )
    return module, session, batch


def _dtype(module: Any) -> torch.dtype:
    return next((tensor.dtype for tensor in module.state_dict().values() if tensor.is_floating_point()), torch.float32)


def _translate(model: Any, values: int | None) -> tuple[Any, int]:
    """The module and the batch size that the file fixes (1 if it leaves it open)."""
    graph = model.graph
    constants = {tensor.name: _weights(tensor) for tensor in graph.initializer}
    name, dims, kind = _input(graph)
    if len(graph.output) != 1:
        raise LingraftError(f"the network has {len(graph.output)} outputs. Export it with one.")
    alone = dims[0] > 1 and math.prod(dims) == values
    readings = [(max(dims[0], 1), dims[1:])] if len(dims) > 1 and not alone else []
    if dims[0] > 1 or not readings:
        readings.append((0, dims))  # or without a batch dimension
    problem: LingraftError | None = None
    for batch, shape in readings:
        try:
            return _precisely(model, constants, name, kind, batch, shape), max(batch, 1)
        except LingraftError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _precisely(
    model: Any, constants: dict[str, np.ndarray], name: str, kind: int, batch: int, shape: tuple[int, ...]
) -> Any:
    """The module, in double precision if single is not enough."""
    if kind == TensorProto.FLOAT:
        try:
            return _read(model, constants, name, GraphBuilder(shape, max(batch, 1), not batch))
        except TooPreciseError:
            pass
    return _read(model, constants, name, GraphBuilder(shape, max(batch, 1), not batch, torch.float64))


def _read(model: Any, constants: dict[str, np.ndarray], name: str, builder: GraphBuilder) -> Any:
    """The module that the nodes of a file make, one after the other."""
    graph = model.graph
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    folder, input_shape = Folder(opset), builder.shape(builder.input)[1:]
    values: dict[str, Value] = {**constants, name: builder.input}
    for proto in graph.node:
        values |= zip(proto.output, _read_node(builder, proto, values, folder), strict=False)
    output = values.get(graph.output[0].name)
    if not isinstance(output, fx.Node):
        raise LingraftError("the output of the network does not depend on its input.")
    builder.graph.output(builder.bare(output, 1) if len(builder.shape(output)) == 1 else output)
    drop_parts(builder)
    absorb_biases(builder)
    if builder.dtype == torch.float32:  # as they are written by lingraft
        restore_grafted_sites(builder)
    module: Any = builder.finish()
    module.input_shape = input_shape
    return module


def _input(graph: Any) -> FileInput:
    """The one input."""
    inputs = file_inputs(graph)
    if len(inputs) != 1:
        raise LingraftError(f"the network has {len(inputs)} inputs. Export it with one.")
    return inputs[0]


def _read_node(
    builder: GraphBuilder, proto: Any, values: dict[str, Value], folder: Folder
) -> list[np.ndarray] | list[fx.Node]:
    """What the outputs of a node stand for, or the first of them."""
    unknown = [name for name in proto.input if name and name not in values]
    if unknown:  # a second output of another node
        raise LingraftError(f"{proto.op_type} node {proto.name!r} takes {unknown[0]!r}, which cannot be read.")
    inputs = [values[name] if name else None for name in proto.input]
    node = OnnxNode(proto, inputs, folder.opset)
    if proto.domain not in ("", "ai.onnx"):
        raise LingraftError(f"{node.title} is of the custom operation set {proto.domain!r}, which is not supported.")
    # A damaged file makes numpy, onnx and torch raise all kinds of errors here; each becomes one that names the node.
    try:
        if node.operation == "Shape" and isinstance(inputs[0], fx.Node):
            shape = np.array(builder.file_shape(inputs[0]), dtype=np.int64)
            return [shape[node.attribute("start", 0) : node.attribute("end", len(shape))]]
        known = [value for value in inputs if not isinstance(value, fx.Node)]
        if len(known) == len(inputs):
            return folder.fold(proto, known)
        found = translate(builder, node)
    except TooPreciseError:
        raise
    except LingraftError as error:
        raise error if node.title in str(error) else LingraftError(f"{node.title}: {error}") from error
    except Exception as error:
        raise LingraftError(f"{node.title} cannot be read ({reason(error)}). Export the network again.") from error
    node.done()
    return found


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
