"""Networks and data of one's own on the command line, from training to the report, and in Python."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracles.own_files import write_code, write_data, write_onnx
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.model import zoo
from lingraft.runs import Run
from lingraft.runs.summary import VERDICTS

FEW = ["--score-images", "30", "--bound-images", "5", "--images", "10"]
TRAIN = ["--epochs", "3", "--batch", "20", "--validation-images", "10", "-o", "run"]
FAST = ["--images", "4", "--timeout", "5", "--workers", "0"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code, a table with its range and radius, images, and the working directory."""
    write_code(tmp_path)
    write_data(tmp_path / "table.npz", (6,), 3, lower=np.zeros(6), upper=np.full(6, 3.0), eps=np.full(6, 0.06))
    write_data(tmp_path / "images.npz", (1, 8, 8), eps=0.01)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: object) -> Any:
    """What a command prints as JSON."""
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    if isinstance(result.exception, LingraftError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def graft_and_prove(run: str, own: list[str]) -> None:
    """graft → verify --check → report → export; the exported network gets the same verdicts."""
    call("graft", run, *own, "--epochs", 1, *FEW, "-o", "grafted")
    proven = call("verify", "grafted", *own, *FAST, "--check")
    assert proven["verified"] >= 1
    assert proven["certificates"]["checked"] == proven["verified"]
    assert call("evaluate", "grafted", *own, "--steps", 2, "--images", 5)["sa"] > 0.5
    assert call("report", run, "grafted", "-o", "report.html")["bytes"] > 10_000
    assert call("export", "grafted", "grafted.onnx", *own)["difference"] < 1e-5
    about = Run("grafted").describe()
    again = call("verify", "grafted.onnx", "--data", about.data, *FAST)
    assert [again[name] for name in VERDICTS] == [proven[name] for name in VERDICTS]
    assert call("show", "grafted")["model"]["origin"] == call("show", run)["model"]["origin"]
    assert about.parent == run
    if about.needs_code:
        with pytest.raises(LingraftError, match="add --model"):
            call("verify", "grafted", *FAST)


@pytest.mark.slow
def test_a_table_and_an_mlp(folder: Path) -> None:
    call("train", "--model", "net.py:mlp", "--data", "table.npz", *TRAIN)
    about = Run("run").describe()
    assert (about.data, about.input_shape) == ("table.npz", (6,))
    assert (about.clip[1].tensor.tolist(), about.eps.tensor.tolist()) == ([3.0] * 6, [0.06] * 6)
    graft_and_prove("run", ["--model", "net.py:mlp"])


@pytest.mark.slow
def test_a_resnet_with_batch_norm(folder: Path) -> None:
    call("train", "--model", "net.py:ResNet", "--data", "images.npz", *TRAIN)
    graft_and_prove("run", ["--model", "net.py:ResNet"])


@pytest.mark.slow
def test_a_network_read_from_onnx(folder: Path) -> None:
    write_onnx(folder)
    call("train", "--model", "net.onnx", "--data", "images.npz", *TRAIN)
    Path("net.onnx").unlink()  # the run has its copy
    graft_and_prove("run", [])


@pytest.mark.slow
def test_in_python(folder: Path) -> None:
    few: dict[str, Any] = {"score_images": 30, "bound_images": 5, "images": 10, "epochs": 1}
    model = lingraft.train("net.py:mlp", "table.npz", run="run", epochs=3, batch=20)
    run = lingraft.Run("run", model="net.py:mlp")
    images = torch.rand(3, 6)
    assert torch.equal(lingraft.load(run)(images), model(images))
    grafted = lingraft.graft_and_tune(run, out="grafted", **few).run
    results = lingraft.verify(Run("grafted", model="net.py:mlp"), 4, workers=0, check=True)
    assert results.summary.verified >= 1
    assert all(result.checked for result in results if result.verdict == "verified")
    lingraft.write_report([run, grafted], "report.html")
    lingraft.export(lingraft.load("grafted", model="net.py:mlp"), "grafted.onnx", data="table.npz")
    again = lingraft.verify("grafted.onnx", 4, data="table.npz", workers=0)
    assert [result.verdict for result in again] == [result.verdict for result in results]
    scores = lingraft.score("grafted.onnx", "table.npz", score_images=30, bound_images=5)
    assert scores.facts["bound_images"] == 5


@pytest.mark.slow
def test_networks_that_are_in_no_run(folder: Path) -> None:
    write_onnx(folder)
    data = ["--data", "images.npz"]
    assert call("verify", "--onnx", "net.onnx", *data, *FAST)["images"] == 4
    assert call("evaluate", "--model", "net.py:ResNet", *data, "--images", 3, "--steps", 1)["images"] == 3
    few = ["--score-images", 20, "--bound-images", 3]
    assert call("score", "net.onnx", *data, *few)["scores"] is None
    call("score", "net.onnx", *data, *few, "-o", "scores.npz")
    chosen = call("select", "net.onnx", "--scores", "scores.npz", "-o", "mask.safetensors")
    words = [
        "graft",
        "net.onnx",
        *data,
        "--mask",
        "mask.safetensors",
        "--epochs",
        0,
        "--images",
        5,
        "--bound-images",
        3,
    ]
    assert call(*words)["plan"]["grafted"] == chosen["grafted"]
    grafted = Run("runs/net-grafting-50").describe()
    assert (grafted.parent, grafted.data, grafted.origin.place) == (None, "images.npz", "net.onnx")
    assert call("export", "--model", "net.py:ResNet", "other.onnx", *data)["networks"] == ["other.onnx"]
    kept = call("save", "--model", "net.py:ResNet", *data, "--eps", "2/255")["run"]
    assert kept == "runs/ResNet"
    assert Run(kept).describe().eps == 2 / 255
    shown = call("show", "net.onnx")
    assert [site["shape"] for site in shown["sites"]] == [[2, 4, 4], [2, 4, 4]]
    assert shown == {**call("show", "--model", "net.py:ResNet", *data), "network": "net.onnx", "sites": shown["sites"]}


@pytest.mark.slow
def test_digits_and_an_onnx_file(tmp_path: Path) -> None:
    model = zoo.build("digits-cnn-half").eval()
    lingraft.export_onnx(model, tmp_path / "net.onnx", input_shape=(1, 8, 8))
    words = ["--data", "digits", "--eps", "0.02", "--images", "20", "--workers", "0"]
    named, beside = (call("verify", *way, tmp_path / "net.onnx", *words) for way in ([], ["--onnx"]))
    assert [named[name] for name in VERDICTS] == [beside[name] for name in VERDICTS]
    assert named["images"] == 20


@pytest.mark.slow
def test_what_was_trained_on_does_not_test(folder: Path) -> None:
    write_data(folder / "plain.npz", (6,), divided=False)
    write_data(folder / "other.npz", (6,), eps=0.01)
    words = ["--model", "net.py:mlp", "--data", "plain.npz", "--eps", "0.01", "--epochs", 1]
    with pytest.raises(LingraftError, match="say little of others"):
        call("train", *words, "--test-data", "plain.npz", "-o", "run")
    call("train", *words, "-o", "run")
    own = ["run", "--model", "net.py:mlp"]
    for data in ([], ["--data", "plain.npz"]):
        for command in (["evaluate"], ["verify", *FAST], ["graft", *FEW]):
            with pytest.raises(LingraftError, match="say little of others"):
                call(command[0], *own, *command[1:], *data)
    assert call("evaluate", *own, "--data", "other.npz", "--images", 5)["data"] == "other.npz"
    call("train", *words, "--test-data", "other.npz", "-o", "both")
    assert call("evaluate", "both", "--model", "net.py:mlp", "--images", 5)["data"] == "other.npz"
    write_data(folder / "plain.npz", (6,), divided=False, eps=0.3)  # another file
    with pytest.raises(LingraftError, match="has changed since"):
        call("score", *own)
    with pytest.raises(LingraftError, match="other settings"):
        call("train", *words, "-o", "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate"], "there is no network"),
        (["verify"], "nothing to verify"),
        (["verify", "net.onnx"], "Give --data"),
        (["verify", "--onnx", "a.onnx", "--model", "net.py:mlp"], "Give one of them"),
        (["verify", "a.onnx", "--model", "net.py:mlp"], "Give one of them"),
        (["evaluate", "net.onnx", "--data", "images.npz"], "net.onnx"),
        (["evaluate", "--model", "net.py:mlp", "--data", "none.npz", "--eps", "0.1"], "there is no file none.npz"),
        (["evaluate", "--model", "net.py:mlp", "--data", "bare.npz"], "give eps"),
        (["evaluate", "--model", "net.py:mlp", "--data", "table.npz", "--eps", "much"], "not a number"),
        (["evaluate", "--model", "net.py:mlp", "--data", "table.npz", "--clip", "1"], "clip is"),
        (["evaluate", "--model", "net.py:mlp", "--data", "bare.npz", "--eps", "5"], "more than the whole pixel range"),
        (["evaluate", "--model", "net.py", "--data", "table.npz"], "what makes it"),
        (["train", "--model", "net.py:mlp", "--data", "bare.npz"], "says no radius"),
        (["graft", "--model", "net.py:mlp", "--eps", "0.1"], "give data to train on"),
        (["graft", "net.onnx", "--data", "images.npz", "--method", "auto", "--min-sa", "0.5"], "lingraft save"),
        (["report", "net.onnx"], "lingraft save"),
        (["save"], "give one network"),
        (["save", "--model", "net.py:mlp"], "give input_shape"),
        (["select", "--model", "net.py:mlp"], "Give the file of them"),
    ],
)
def test_mistakes(folder: Path, words: list[str], message: str) -> None:
    write_data(folder / "bare.npz", (6,))
    with pytest.raises(LingraftError, match=message):
        call(*words)
