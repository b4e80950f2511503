"""`lingraft export`: from a run to files that other verifiers read."""

import csv
import json
from pathlib import Path

import onnxruntime
import pytest
import torch
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError, data
from lingraft.cli import app
from lingraft.formats.vnnlib import read_vnnlib
from lingraft.runs import ModelDescription, Run


@pytest.fixture(scope="module")
def run(trained_run: Path) -> Path:
    return trained_run


def export(*arguments: object):
    result = CliRunner().invoke(app, ["export", *map(str, arguments)])
    if isinstance(result.exception, LingraftError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_network(run, tmp_path):
    path = tmp_path / "net.onnx"
    result = export(run, path)
    assert "net.onnx" in result.stdout
    x = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(lingraft.load_onnx(path)(x), lingraft.load(run)(x), rtol=1e-4, atol=1e-4)


def test_json(run, tmp_path):
    result = json.loads(export(run, tmp_path / "net.onnx", "--form", "input", "--dynamic-batch", "--json").stdout)
    assert result["networks"] == [str(tmp_path / "net.onnx")]
    assert result["compared_images"] == 8
    assert 0 <= result["difference"] <= 1e-5


def test_benchmark_folder(run, tmp_path):
    """Every instance names files that are there, about correctly classified images, with the box of the radius."""
    result = json.loads(
        export(run, "--vnnlib", tmp_path, "--images", "10:40", "--eps", "8/255", "--timeout", 30, "--json").stdout
    )
    with open(tmp_path / "instances.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == result["properties"]
    assert result["properties"] + result["misclassified"] == 30
    test = data.load("digits", "test")
    session = onnxruntime.InferenceSession(str(tmp_path / rows[0][0]), providers=["CPUExecutionProvider"])
    for network, name, timeout in rows:
        assert (network, timeout) == ("onnx/network.onnx", "30")
        index = int(Path(name).stem.removeprefix("image_"))
        assert 10 <= index < 40
        image, label = test.pixels(slice(index, index + 1)), int(test.labels[index])
        (box,) = read_vnnlib(tmp_path / name, 64, 10).boxes
        assert (box.lower == (image - 8 / 255).clamp(0, 1).numpy().ravel()).all()
        assert (box.upper == (image + 8 / 255).clamp(0, 1).numpy().ravel()).all()
        y = session.run(None, {"input": image.numpy()})[0][0]
        assert y.argmax() == label
        assert not any(conjunction.holds(y) for conjunction in box.unsafe)


def test_radius_of_the_run_is_the_default(run, tmp_path):
    assert json.loads(export(run, "--vnnlib", tmp_path, "--images", "0:5", "--json").stdout)["eps"] == 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to export to"),
        (["net.onnx", "--form", "sideways"], "unknown form"),
        (["--vnnlib", "d", "--images", "1:2:3"], "--images"),
        (["--vnnlib", "d", "--images", "a"], "--images"),
        (["--vnnlib", "d", "--images", "9000:"], "none of"),
        (["--vnnlib", "d", "--eps", "2"], "whole pixel range"),
        (["--vnnlib", "d", "--data", "imagenet"], "imagenet"),
    ],
)
def test_mistakes(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LingraftError, match=message):
        export(run, *arguments)


def test_run_without_data_or_radius(run, tmp_path):
    bare = Run(tmp_path / "bare")
    bare.write_description(ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10))
    bare.save_weights(lingraft.load(run))
    result = json.loads(export(bare.path, tmp_path / "net.onnx", "--json").stdout)
    assert result["compared_images"] == 0
    with pytest.raises(LingraftError, match="--eps"):
        export(bare.path, "--vnnlib", tmp_path / "d")
    with pytest.raises(LingraftError, match="--data"):
        export(bare.path, "--vnnlib", tmp_path / "d", "--eps", "0.1")
