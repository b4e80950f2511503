"""Marabou, an exact verifier of another kind, on the same files: it must agree."""

import numpy as np
import pytest
import torch
from torch import nn

from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.formats.vnnlib_write import write_vnnlib
from lingraft.model.sites import sites
from lingraft.model.surgery import graft
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.instance import Instance
from lingraft.work.vnncomp.other_verifiers import find_tool
from lingraft.work.vnncomp.tool_runner import ToolRunner


@pytest.fixture(scope="module")
def marabou() -> ToolRunner:
    tool, command = find_tool("marabou", None)
    if command is None:
        pytest.skip(f"Marabou is not installed: {tool.install}")
    return ToolRunner(tool, command)


@pytest.mark.parametrize("grafted", [False, True])
def test_fully_connected(marabou, tmp_path, grafted) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    if grafted:
        model = graft(model, {s.name: torch.rand(s.shape) < 0.4 for s in sites(model, (4,))}, 0.4, 0.1)
    agree(marabou, model, torch.rand(3, 4), [0.1, 0.5, 2.0], tmp_path)


def test_grafted_convolutions(marabou, tmp_path) -> None:
    """Written as BatchNormalization, which is all that Marabou takes."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)).eval()
    model = graft(model, {s.name: torch.rand(s.shape) < 0.4 for s in sites(model, (1, 4, 4))}, 0.4, 0.1)
    agree(marabou, model, torch.rand(2, 1, 4, 4), [0.05, 0.3], tmp_path)


def agree(marabou: ToolRunner, model: nn.Module, images: torch.Tensor, radii: list[float], folder) -> None:
    shape = tuple(images.shape[1:])
    export_onnx(model, folder / "net.onnx", input_shape=shape)
    export_onnx(model, folder / "theirs.onnx", input_shape=shape, form="batchnorm")
    network, words = OnnxNetwork(folder / "net.onnx"), []
    for image in images:
        with torch.no_grad():
            label = int(model(image[None]).argmax())
        for eps in radii:
            write_vnnlib(folder / "p.vnnlib", (image - eps).numpy(), (image + eps).numpy(), label, 3)
            ours = Instance.read(network, folder / "p.vnnlib").answer(Limits(30.0))
            theirs = marabou.ask(folder / "theirs.onnx", folder / "p.vnnlib", 30.0)
            assert theirs.word == ours.word, theirs.reason
            words.append(ours.word)
    assert set(words) == {"sat", "unsat"}


def test_unreadable_network(marabou, tmp_path) -> None:
    """What it does not understand is an error with its own words, not an answer."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 2)).eval()
    export_onnx(model, tmp_path / "net.onnx", input_shape=(2,))
    (tmp_path / "p.vnnlib").write_text("this is no property")
    answer = marabou.ask(tmp_path / "net.onnx", tmp_path / "p.vnnlib", 5.0)
    assert answer.word == "error"
    assert answer.reason is not None
    assert np.isfinite(answer.seconds)
