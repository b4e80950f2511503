"""Where the network of a run comes from, and that no code is run that nobody named."""

import shutil
from pathlib import Path

import pytest
import torch
from tests.oracles.own_files import write_code, write_onnx
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.files import digest_file, read_json, write_json
from lingraft.runs import Run
from lingraft.runs.origin import is_network, origin_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_code(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_code_is_run_only_if_it_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = lingraft.save("net.py:mlp", "run", (6,))
    origin = run.describe().origin
    assert origin is not None
    assert (origin.place, origin.sha256) == ("net.py:mlp", digest_file(Path("net.py")))
    weights = lingraft.load(run, model="net.py:mlp").state_dict()
    source = Path("net.py").read_text()
    Path("net.py").write_text(source + "\nopen('was run', 'w').close()\n")
    with pytest.raises(
        LingraftError, match=r"runs no code that you do not name: if you trust it, add --model net\.py:mlp"
    ):
        lingraft.load(run)
    with pytest.raises(LingraftError, match="add --model"):
        lingraft.evaluate("run", "digits", eps=0.1)
    assert not Path("was run").exists()
    assert "note" not in capsys.readouterr().err
    same = lingraft.load(Run("run", model="net.py:mlp"))
    assert "has changed" in " ".join(capsys.readouterr().err.split())
    assert Path("was run").exists()
    assert all(torch.equal(weights[name], value) for name, value in same.state_dict().items())


def test_an_onnx_file_is_kept_with_the_run(folder: Path) -> None:
    write_onnx(folder)
    run = lingraft.save("net.onnx", "run")
    images = torch.rand(3, 1, 8, 8)
    expected = lingraft.load_onnx("net.onnx")(images)
    Path("net.onnx").unlink()
    assert torch.equal(lingraft.load("run")(images), expected)
    assert run.describe().input_shape == (1, 8, 8)
    assert not run.describe().needs_code
    shutil.copy("net.py", "run/network.onnx")
    with pytest.raises(LingraftError, match=r"network\.onnx"):
        lingraft.load("run")


def test_the_class_of_a_module_says_where_it_comes_from(folder: Path) -> None:
    from tests.oracles.own_models import OWN_SHAPE, ResNet  # as a user imports a module

    run = lingraft.save(ResNet(), "run", OWN_SHAPE)
    origin = run.describe().origin
    assert origin is not None
    assert origin.place.endswith(":ResNet")
    assert lingraft.load(run, model=origin.place).training is False
    assert (
        lingraft.save(nn.Sequential(nn.Flatten(), nn.Linear(16, 2), nn.ReLU()), "plain", OWN_SHAPE).describe().origin
        is None
    )
    with pytest.raises(LingraftError, match="holds a model of your own"):
        lingraft.load("plain")


def test_a_run_that_says_anything(folder: Path) -> None:
    run = lingraft.save("net.py:mlp", "run", (6,))
    content = read_json(run.description_path)
    write_json(run.description_path, {**content, "origin": {"place": "os:abort", "sha256": None}})
    with pytest.raises(LingraftError, match="add --model os:abort"):
        lingraft.load(run)
    write_json(run.description_path, {**content, "origin": {"place": "../x.onnx", "sha256": None}})
    with pytest.raises(LingraftError, match=r"network\.onnx"):  # never another file
        lingraft.load(run)


def test_what_is_a_network(folder: Path) -> None:
    assert is_network("net.onnx")
    assert is_network(Path("a/net.onnx.gz"))
    assert is_network("net.py:mlp")
    assert not is_network("runs/mine")
    assert not is_network(nn.ReLU())
    with pytest.raises(LingraftError, match="cannot read"):
        origin_of("none.onnx")
