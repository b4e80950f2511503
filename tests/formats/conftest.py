"""ONNX files made by hand, and round trips through a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, save_model, shape_inference
from torch import Tensor, fx, nn

from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_import import load_onnx

MakeOnnx = Callable[..., Path]


@pytest.fixture
def make_onnx(tmp_path: Path) -> MakeOnnx:
    """make_onnx(nodes, input_shape, weights): an ONNX file from input `x` to output `y`; the batch is in the shape.

    A node is (operation, inputs, output, attributes…).
    """

    def make(
        nodes: list[tuple[Any, ...]],
        input_shape: list[int | str],
        weights: dict[str, np.ndarray] | None = None,
        opset: int = 13,
        input_type: int = TensorProto.FLOAT,
        outputs: tuple[str, ...] = ("y",),
        domain: str = "",
    ) -> Path:
        protos = [
            helper.make_node(
                operation,
                inputs.split(),
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
        path = tmp_path / "made.onnx"
        model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=7))
        for value in model.graph.output:
            value.type.tensor_type.shape.dim.extend([])  # the checker wants a shape, if only an empty one
        save_model(model, str(path))
        return path

    return make


@pytest.fixture
def round_trip(tmp_path: Path) -> Callable[..., fx.GraphModule]:
    """round_trip(model, input_shape, **options): exported, imported, and seen to give the same outputs."""

    def go(model: nn.Module, input_shape: tuple[int, ...], **options: Any) -> fx.GraphModule:
        model.eval()
        export_onnx(model, tmp_path / "net.onnx", input_shape=input_shape, **options)
        back = load_onnx(tmp_path / "net.onnx")
        assert back.input_shape == input_shape
        x = torch.randn(5, *input_shape)
        with torch.no_grad():
            assert_close(back(x), model(x))
        return back

    return go


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Equal up to float32 rounding, relative to the largest value."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()) + 1e-7)
