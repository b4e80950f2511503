"""`lingraft evaluate`, end to end."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from lingraft import LingraftError
from lingraft.cli import app
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run

QUICK = ["--steps", "2", "--restarts", "2"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """An untrained network."""
    torch.manual_seed(0)
    run = Run(tmp_path / "run")
    run.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.05)
    )
    run.save_weights(zoo.build("digits-cnn"))
    return run


def call(run: Run, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["evaluate", str(run.path), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_figures_are_printed_and_kept(run: Run) -> None:
    printed = json.loads(call(run, *QUICK, "--images", "50", "--seed", "3", "--json"))
    assert (printed["attack"], printed["steps"], printed["restarts"]) == ("pgd", 2, 2)
    assert (printed["eps"], printed["images"], printed["images_sa"], printed["seed"]) == (0.05, 50, 353, 3)
    kept = run.summary().as_dict()["evaluation"]
    assert list(kept) == ["digits pgd-2x2 eps=0.05 images=50 seed=3"]
    assert {"run": str(run.path), **kept["digits pgd-2x2 eps=0.05 images=50 seed=3"]} == printed
    table = call(run, "--attack", "fgsm", "--eps", "1/10")
    assert "353" in table
    assert "fgsm" in table
    assert set(run.summary().as_dict()["evaluation"]) == {*kept, "digits fgsm eps=0.1 images=353 seed=0"}


def test_the_batch_size_changes_nothing(run: Run) -> None:
    results = [json.loads(call(run, *QUICK, "--images", "all", "--batch", b, "--json")) for b in ("16", "512")]
    for result in results:
        del result["seconds"]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attack", "pdg"], "Did you mean 'pgd'"),
        (["--steps", "0"], "steps of at least 1"),
        (["--images", "0"], "cannot take 0"),
        (["--images", "400"], "cannot take 400 images of 353"),
        (["--images", "some"], "not a number of images"),
        (["--eps", "2"], "whole pixel range"),
        (["--data", "digitz"], "unknown data set"),
        (["--batch", "0"], "at least 1"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_bad_options(run: Run, options: list[str], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        call(run, *QUICK, *options)
    assert run.summary().as_dict() == {}


def test_a_run_that_names_neither_data_nor_eps(run: Run) -> None:
    run.write_description(ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10))
    with pytest.raises(LingraftError, match="--eps"):
        call(run, *QUICK)
    with pytest.raises(LingraftError, match="--data"):
        call(run, *QUICK, "--eps", "0.1")
    assert "standard" in call(run, *QUICK, "--eps", "0.1", "--data", "digits", "--images", "10")


def test_data_of_another_shape_is_an_error(run: Run, data_folder: Path) -> None:
    with pytest.raises(LingraftError, match=r"\(1, 8, 8\)"):
        call(run, *QUICK, "--data", "mnist")


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(LingraftError, match="not a run folder"):
        call(Run(tmp_path / "nothing"))
