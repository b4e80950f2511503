"""Networks joined into one: what onnxruntime says of each by itself."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from lingraft.formats.joined_network import JoinedNetwork, Part
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_network import OnnxNetwork


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two networks: three inputs in the shape (1, 3) to two outputs, and two inputs to one."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Flatten(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    second = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    export_onnx(first.eval(), tmp_path / "f.onnx", input_shape=(1, 3))
    export_onnx(second.eval(), tmp_path / "g.onnx", input_shape=(2,))
    return [tmp_path / "f.onnx", tmp_path / "g.onnx"]


def alone(path: Path, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.astype(np.float32).reshape(1, *shape)})[0].ravel()


def test_joined_networks_are_each_of_them(files):
    f, g = map(OnnxNetwork, files)
    parts = [Part(f, np.array([0, 1, 2])), Part(g, np.array([2, 3])), Part(f, np.array([3, 3, 0]))]
    joined = JoinedNetwork(parts, 4, with_inputs=True)
    assert (joined.inputs, joined.outputs, joined.input_shape) == (4, 2 + 1 + 2 + 4, (4,))
    points = np.random.default_rng(0).uniform(-1, 1, (5, 4))
    network = joined.verifier(double=True).network
    for x in points.astype(np.float32).astype(np.float64):
        outputs = [alone(files[0], x[:3], (1, 3)), alone(files[1], x[2:], (2,)), alone(files[0], x[[3, 3, 0]], (1, 3))]
        expected = np.concatenate([*outputs, x])
        assert np.array_equal(joined.run(x), expected)
        np.testing.assert_allclose(network.forward(torch.from_numpy(x)[None])[0].numpy(), expected, atol=1e-5)
    assert JoinedNetwork(parts[:2], 4, with_inputs=False).run(points[0]).shape == (3,)
