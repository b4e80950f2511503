"""ONNX files made by hand, and round trips through a file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from handmade_onnx import write_onnx
from torch import Tensor, fx, nn

from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_import import load_onnx

MakeOnnx = Callable[..., Path]


@pytest.fixture
def make_onnx(tmp_path: Path) -> MakeOnnx:
    """make_onnx(nodes, input_shape, weights, …): see handmade_onnx.write_onnx."""
    return partial(write_onnx, tmp_path)


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
