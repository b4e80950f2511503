"""ONNX files made by hand, node by node."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper, save_model, shape_inference
from torch import nn

from lingraft.formats.onnx_import import load_onnx
from lingraft.model.tracing import trace


def write_onnx(
    folder: Path,
    nodes: list[tuple[Any, ...]],
    input_shape: list[int | str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 13,
    input_type: int = TensorProto.FLOAT,
    outputs: tuple[str, ...] = ("y",),
    domain: str = "",
) -> Path:
    """An ONNX file in the folder, from input `x` to output `y`; the batch is in the shape.

    A node is (operation, inputs, output, attributes…).
    """
    protos = [
        helper.make_node(
            operation,
            inputs.split(" ") if inputs else [],  # two spaces: an input left out
            output.split(),
            name=f"the_{output}",
            domain=domain,
            **(rest[0] if rest else {}),
        )
        for operation, inputs, output, *rest in nodes
    ]
    graph = helper.make_graph(
        protos,
        "test",
        [helper.make_tensor_value_info("x", input_type, input_shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    path = folder / "made.onnx"
    model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=7))
    for value in model.graph.output:
        value.type.tensor_type.shape.dim.extend([])  # the checker wants a shape, if only an empty one
    save_model(model, str(path))
    return path


def onnx_bytes(
    nodes: list[Any],
    shape: list[int],
    weights: dict[str, np.ndarray],
    opset: int = 13,
    kind: int = TensorProto.FLOAT,
    ir: int = 7,
) -> bytes:
    """The file of a network from `x` to `y`."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir).SerializeToString()


def floats(*shape: int) -> np.ndarray:
    """Random numbers, the same each time."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers of a seed."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def kinds(module: nn.Module) -> list[str]:
    """The names of the layers' classes."""
    return [type(child).__name__ for child in module.children()]


def assert_same(path: Path, module: nn.Module, *shape: int) -> None:
    """onnxruntime, image by image, gives what the module gives for a batch of three."""
    x = torch.rand(3, *shape) * 4 - 2
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ours = module(x).detach().numpy()
    theirs = [np.asarray(session.run(None, {"x": image[None].numpy()})[0]) for image in x]
    # shapes are compared on reading; outputs may have no batch dimension
    np.testing.assert_allclose(ours, [y.reshape(ours.shape[1:]) for y in theirs], rtol=1e-4, atol=1e-5)


def assert_read(path: Path, shape: tuple[int, ...], layers: list[str]) -> None:
    """The file is read as a network of these layers, which takes inputs of that shape and computes the same."""
    module = load_onnx(path)
    assert kinds(module) == layers
    assert module.input_shape == shape
    assert_same(path, module, *shape)
    trace(module)
