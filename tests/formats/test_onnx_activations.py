"""Activations in ONNX that take more than a name: ends as attributes and inputs, slopes a channel, other constants."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.model.activations.exponential import SELU_CONSTANTS

MAKE = helper.make_node
LARGEST = float(np.finfo(np.float32).max)


def written(
    path: Path, node: Any, constants: dict[str, np.ndarray], opset: int = 13, kind: int = TensorProto.FLOAT
) -> Path:
    """One node from x, (1, 3, 2, 2), to y, all of them of that kind of number."""
    sides = [helper.make_tensor_value_info(name, kind, [1, 3, 2, 2]) for name in "xy"]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    arrays = [numpy_helper.from_array(np.asarray(value, dtype), name) for name, value in constants.items()]
    graph = helper.make_graph([node], "net", sides[:1], sides[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), path)
    return path


def off(number: float, steps: int) -> float:
    """A number in single precision, so many steps away."""
    return float((np.array(number, np.float32).view(np.int32) + np.int32(steps)).view(np.float32))


READ: dict[str, tuple[Any, dict[str, Any], int, type[nn.Module] | None]] = {
    "a range as attributes": (MAKE("Clip", ["x"], ["y"], min=-0.5, max=2.0), {}, 10, nn.Hardtanh),
    "attributes without an upper end": (MAKE("Clip", ["x"], ["y"], min=0.0, max=LARGEST), {}, 10, nn.ReLU),
    "a range as inputs": (MAKE("Clip", ["x", "l", "h"], ["y"]), {"l": 0.0, "h": 6.0}, 13, nn.ReLU6),
    "an upper end": (MAKE("Clip", ["x", "", "h"], ["y"]), {"h": 0.5}, 13, None),
    "a lower end": (MAKE("Clip", ["x", "l"], ["y"]), {"l": 0.5}, 13, None),
    "no end": (MAKE("Clip", ["x"], ["y"]), {}, 13, None),
    "slopes of channels": (MAKE("PRelu", ["x", "s"], ["y"]), {"s": [[[0.1]], [[-0.3]], [[1.4]]]}, 13, nn.PReLU),
    "one slope": (MAKE("PRelu", ["x", "s"], ["y"]), {"s": [0.2]}, 13, nn.PReLU),
    "ONNX's own hard sigmoid": (MAKE("HardSigmoid", ["x"], ["y"]), {}, 13, nn.Hardtanh),
    "torch's hard sigmoid": (MAKE("HardSigmoid", ["x"], ["y"], alpha=1 / 6), {}, 13, nn.Hardsigmoid),
    "nearly torch's": (MAKE("HardSigmoid", ["x"], ["y"], alpha=off(1 / 6, 15)), {}, 13, nn.Hardtanh),
    "one step from torch's": (MAKE("HardSigmoid", ["x"], ["y"], alpha=off(1 / 6, -1)), {}, 13, nn.Hardtanh),
    "nearly SELU": (MAKE("Selu", ["x"], ["y"], gamma=off(SELU_CONSTANTS[1], 1)), {}, 13, nn.ELU),
    "SELU, but for alpha": (MAKE("Selu", ["x"], ["y"], alpha=off(SELU_CONSTANTS[0], -1)), {}, 13, nn.ELU),
    "SELU as it is by default": (MAKE("Selu", ["x"], ["y"]), {}, 13, nn.SELU),
    "SELU of other constants": (MAKE("Selu", ["x"], ["y"], alpha=1.2, gamma=0.8), {}, 13, nn.ELU),
    "SELU": (MAKE("Selu", ["x"], ["y"], alpha=1.67326319217681884765625), {}, 13, nn.SELU),
    "ELU": (MAKE("Elu", ["x"], ["y"], alpha=0.3), {}, 13, nn.ELU),
}


@pytest.mark.parametrize("case", READ)
def test_it_is_read_as_onnxruntime_reads_it(case: str, tmp_path: Path) -> None:
    node, constants, opset, layer = READ[case]
    path = written(tmp_path / "net.onnx", node, constants, opset)
    if case == "no end":
        with pytest.raises(LingraftError, match="no activation"):
            lingraft.sites(lingraft.load_onnx(path), (3, 2, 2))
        return
    back = lingraft.load_onnx(path)
    assert len(lingraft.sites(back, (3, 2, 2))) == 1
    assert [type(module) for module in back.modules()][1:] == ([] if layer is None else [layer])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for scale in (0.3, 3.0, 30.0):
        x = scale * torch.randn(1, 3, 2, 2)
        (theirs,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(back(x).detach(), torch.from_numpy(theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("node", "constants", "message"),
    [
        (MAKE("Clip", ["x", "l", "h"], ["y"]), {"l": 1.0, "h": 1.0}, "makes a constant of it"),
        (MAKE("PRelu", ["x", "s"], ["y"]), {"s": np.ones((3, 2, 2))}, r"slope of shape \(3, 2, 2\)"),
        (MAKE("Elu", ["x"], ["y"], alpha=-1.0), {}, r"alpha=-1\.0 is not supported"),
    ],
)
def test_what_is_refused(node: Any, constants: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(LingraftError, match=message):
        lingraft.load_onnx(written(tmp_path / "net.onnx", node, constants))


@pytest.mark.parametrize("slopes", [[0.1], [[[0.1]], [[-0.3]], [[1.4]]]])
def test_slopes_of_a_file_in_double_precision_are_not_rounded(slopes: Any, tmp_path: Path) -> None:
    node, constants = MAKE("PRelu", ["x", "s"], ["y"]), {"s": np.array(slopes)}
    back = lingraft.load_onnx(written(tmp_path / "net.onnx", node, constants, 16, TensorProto.DOUBLE))
    (layer,) = (module for module in back.modules() if isinstance(module, nn.PReLU))
    assert layer.weight.tolist() == np.ravel(slopes).tolist()
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    x = torch.randn(1, 3, 2, 2, dtype=torch.float64)
    (theirs,) = session.run(None, {"x": x.numpy()})
    torch.testing.assert_close(back(x).detach(), torch.from_numpy(theirs), rtol=1e-15, atol=0)


def test_an_alpha_near_to_a_sixth_is_not_taken_for_it(tmp_path: Path) -> None:
    """15 steps off, which a factor behind it makes as large as one likes."""
    alpha = off(1 / 6, 15)
    node = MAKE("HardSigmoid", ["x"], ["y"], alpha=alpha)
    back = lingraft.load_onnx(written(tmp_path / "net.onnx", node, {})).double()
    x = torch.linspace(-2.9, 2.9, 12, dtype=torch.float64).view(1, 3, 2, 2)
    torch.testing.assert_close(back(x), alpha * x + 0.5, rtol=0, atol=1e-15)
    assert float((back(x) - nn.Hardsigmoid()(x)).abs().max()) > 5e-7


def test_a_network_in_double_precision_computes_with_the_attributes(tmp_path: Path) -> None:
    """Which are in single precision in every file, and are not torch's numbers there."""
    nodes = [
        MAKE("Selu", ["x"], ["a"]),
        MAKE("Cast", ["a"], ["b"], to=TensorProto.DOUBLE),
        MAKE("Mul", ["b", "tenth"], ["c"]),
        MAKE("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", sides[:1], sides[1:], [numpy_helper.from_array(np.array(0.1), "tenth")])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), path)
    x = torch.linspace(-5, 5, 12, dtype=torch.float64).view(-1, 3)
    alpha, gamma = (float(np.float32(number)) for number in SELU_CONSTANTS)
    torch.testing.assert_close(lingraft.load_onnx(path)(x), 0.1 * gamma * nn.ELU(alpha)(x), rtol=0, atol=1e-15)
