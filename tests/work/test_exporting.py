"""A model and data of one's own, exported as a benchmark, decided, and compared with another verifier."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)).train()


@pytest.fixture
def data(model: nn.Module) -> tuple[Tensor, Tensor]:
    images = torch.rand(6, 1, 4, 4)
    labels = model(images).argmax(1)
    labels[1] = (labels[1] + 1) % 3
    return images, labels


def test_from_model_to_answers(model: nn.Module, data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    written = lingraft.export(model, tmp_path / "net.onnx", vnnlib=tmp_path / "bench", data=data, eps=0.001, images=4)
    assert model.training, "the model is as it was"
    assert written.networks == [tmp_path / "net.onnx", tmp_path / "bench" / "onnx" / "network.onnx"]
    assert written.properties is not None
    assert (written.properties.properties, written.properties.misclassified) == (3, 1)
    torch.testing.assert_close(lingraft.load_onnx(tmp_path / "net.onnx")(data[0][:1]), model(data[0][:1]))
    figures = lingraft.benchmark(tmp_path / "bench", workers=0, timeout=30).figures()
    assert figures["counts"] == {"unsat": 3, "sat": 0, "unknown": 0, "timeout": 0, "error": 0}


@pytest.mark.slow
def test_beside_another_verifier(model: nn.Module, data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text("print('unsat')")
    tool = f"{sys.executable} {tmp_path / 'says.py'}"
    asked = {"tool": tool, "data": data, "images": slice(2, 4), "eps": 0.001}
    compared = lingraft.compare(model, "marabou", out=tmp_path / "compare", **asked)
    assert [(pair.entry.spec, pair.ours.word, pair.theirs.word) for pair in compared.pairs] == [
        (f"vnnlib/image_{i}.vnnlib", "unsat", "unsat") for i in (2, 3)
    ]
    assert not compared.contradictions
    with pytest.raises(LingraftError, match="give out"):
        lingraft.compare(model, "marabou", **asked)


def test_what_is_missing(model: nn.Module, data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    for arguments, message in [
        ({}, "nothing to export to"),
        ({"vnnlib": tmp_path / "bench", "eps": 0.1}, "give data"),
        ({"vnnlib": tmp_path / "bench", "data": data}, "give eps"),
    ]:
        with pytest.raises(LingraftError, match=message):
            lingraft.export(model, **arguments)
    assert not (tmp_path / "bench").exists()
