"""A run folder that version 0.1.0 wrote is read by this one: loaded, shown, reported, checked, and gone on with.

It is a small network for digits, half of its neurons grafted, evaluated on 20 images and verified on three of them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import lingraft
from lingraft.cli import app
from lingraft.data import load
from lingraft.files import read_lines
from lingraft.grafting.scores import Scores
from lingraft.runs import Run, load_tensors

VERDICTS = ["verified", "verified", "falsified"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A copy of it."""
    return Run(shutil.copytree(Path(__file__).with_name("fixtures") / "grafted_run_of_0_1_0", tmp_path / "run"))


def call(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def shown(run: Run) -> dict[str, Any]:
    return json.loads(call("show", run.path, "--json"))


def test_the_model_is_the_one_that_was_measured(run: Run) -> None:
    model, test = lingraft.load(run.path), load("digits", "test")
    with torch.no_grad():
        right = model(test.pixels()).argmax(1) == test.labels
        tensors, about = load_tensors(run.path / "witnesses" / "digits-2-eps0.05.safetensors")
        assert int(model(tensors["witness"][None]).argmax()) != about["label"]
    (evaluated,) = json.loads((run.path / "summary.json").read_text())["evaluation"].values()
    assert float(right.double().mean()) == pytest.approx(evaluated["sa"])
    assert int(right.sum()) == 318


def test_scores_are_read(run: Run) -> None:
    scores = Scores.load(run.path / "scores.npz")
    grafted = sum(int(chosen.sum()) for chosen in lingraft.select(scores, 0.5).values())
    assert grafted == 400


@pytest.mark.slow
def test_it_is_shown_and_reported(run: Run) -> None:
    (figures,) = shown(run)["figures"]
    assert (figures["sa"], figures["va"], figures["images"]) == (pytest.approx(318 / 353), pytest.approx(2 / 3), 3)
    (listed,) = json.loads(call("runs", run.path.parent, "--json"))
    assert (listed["grafted"], listed["sa"], listed["va"]) == (0.5, figures["sa"], figures["va"])
    assert "kept epoch 1: SA 92.70%, RA 80.00%" in call("show", run.path)
    for suffix in ("md", "html"):
        path = run.path / f"report.{suffix}"
        call("report", run.path, "-o", path)
        assert all(figure in path.read_text() for figure in ("90.1", "70.0", "66.7"))


def test_its_certificates_are_accepted(run: Run) -> None:
    folder = run.path / "certificates"
    assert "2 of 2 accepted" in call("check", folder, "--model", folder / "model.onnx")


def test_verification_goes_on_with_more_images(run: Run) -> None:
    figures = json.loads(call("verify", run.path, "--images", 4, "--timeout", 60, "--workers", 0, "--json"))
    assert figures["images"] == 4
    last = {record["index"]: record["verdict"] for record in read_lines(run.verdicts_path)}
    assert [last[i] for i in range(3)] == VERDICTS
    assert {row["images"] for row in shown(run)["figures"]} >= {4}
    assert len(shown(run)["summary"]["verification"]) == 2, "what 0.1.0 found is still there"
