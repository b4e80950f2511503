"""Shapes by rule are those that torch finds, or none; what can be read by rule needs no compiler."""

import subprocess
import sys
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from lingraft.formats.shapes import call_shape, layer_shape

X, PAIR = (2, 4, 6, 5), ((2, 4, 6, 5), (1, 4, 1, 5))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.cat, ([X, (2, 3, 6, 5)], 1)),
        (torch.cat, ([X, X, X], 3)),
        (torch.mean, (X, [2, 3], False)),
        (torch.mean, (X, (1,), True)),
        (torch.sum, (X, [1], False)),
        (torch.mul, PAIR),
        (torch.pow, (X, 3)),
        (torch.clamp_min, (X, 0.5)),
        (torch.sqrt, (X,)),
    ],
)
def test_functions(function: Any, args: tuple[Any, ...]) -> None:
    def tensor(arg: Any) -> Any:
        if isinstance(arg, list) and isinstance(arg[0], tuple):
            return [torch.zeros(shape) for shape in arg]
        return torch.zeros(arg) if isinstance(arg, tuple) and len(arg) == 4 else arg

    assert call_shape(function, args) == tuple(function(*map(tensor, args)).shape)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.cat, ([X, (2, 3, 6, 4)], 1)),
        (torch.cat, ([X, X], 4)),
        (torch.sum, (X, [4], False)),
        (torch.mul, (X, (3,))),
    ],
)
def test_what_torch_refuses_has_no_rule(function: Any, args: tuple[Any, ...]) -> None:
    assert call_shape(function, args) is None


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Softmax(1), nn.Conv2d(4, 3, 2), nn.ELU()]
)
def test_layers(layer: nn.Module) -> None:
    assert layer_shape(layer, X) == tuple(layer.eval()(torch.zeros(X)).shape)


def test_reading_loads_no_compiler(tmp_path: Any) -> None:
    """The operations whose shapes torch finds in Python only, for which it loads its compiler: over a second."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Concat", ["x", "a"], ["b"], axis=1),
        helper.make_node("ReduceMean", ["b"], ["c"], axes=[1], keepdims=1),
        helper.make_node("Exp", ["c"], ["d"]),
        helper.make_node("Mul", ["b", "d"], ["e"]),
        helper.make_node("Clip", ["e", "low"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=1),
    ]
    low = helper.make_tensor("low", TensorProto.FLOAT, [], [0.25])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size]) for n, size in (("x", 3), ("y", 6))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [low])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "n.onnx")
    code = (
        "import sys; from lingraft.formats.onnx_network import OnnxNetwork;"
        f"OnnxNetwork({str(tmp_path / 'n.onnx')!r}).verifier(False); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
