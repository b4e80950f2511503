"""`lingraft train`, end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app

pytestmark = pytest.mark.slow

FAST = ["train", "--data", "digits", "--model", "digits-cnn", "--epochs", "2", "--validation-images", "20"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def call(*arguments: str) -> str:
    """Run a command that has to succeed; gives what it printed on standard output."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_trains_says_so_and_goes_no_further(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    first = json.loads(call(*FAST, "-o", out, "--json"))
    assert (first["run"], first["epochs_done_before"]) == (out, 0)
    assert 0 <= first["best"]["ra"] <= first["best"]["sa"] <= 1
    assert lingraft.load(out)(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    for name in ("history.svg", "history.png"):
        assert (tmp_path / "run" / "figures" / name).stat().st_size > 1000
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["training"]["settings"]["eps"] == 0.1
    assert summary["training"]["best"] == first["best"]
    again = call(*FAST, "-o", out)
    assert "trained already" in again
    assert json.loads(call(*FAST, "-o", out, "--json"))["epochs_done_before"] == 2
    with pytest.raises(LingraftError, match="epochs: 2 there, 3 now"):
        call(*FAST, "-o", out, "--epochs", "3")
    restarted = json.loads(call(*FAST, "-o", out, "--json", "--epochs", "1", "--restart"))
    assert restarted["epochs_done_before"] == 0


def test_the_default_folder_and_lines_on_standard_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lingraft", *FAST, "--threads", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=ONE_THREAD,
    )
    assert done.returncode == 0, done.stderr
    assert "standard accuracy" in done.stdout
    said = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert [what for what in said if what != "training"] == [
        "epoch 1",
        "epoch 2",
        "next",
    ]  # on a slow machine, progress
    assert (tmp_path / "runs" / "digits-digits-cnn" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "options",
    [["--method", "pgd", "--attack-steps", "2"], ["--method", "trades", "--attack-steps", "2"], ["--eps", "0"]],
)
def test_other_methods(tmp_path: Path, options: list[str]) -> None:
    result = json.loads(call(*FAST, *options, "-o", str(tmp_path / "run"), "--json"))
    assert result["best"]["loss"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "digitz"], "Did you mean 'digits'"),
        (["--model", "cnn"], "unknown model"),
        (["--eps", "-0.1"], "at least 0"),
        (["--eps", "a lot"], "not a number"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--method", "magic"], "unknown method"),
        (["--schedule", "magic"], "unknown schedule"),
        (["--preset", "phone"], "unknown preset"),
        (["--milestones", "soon"], "Write them like"),
        (["--lr", "nan"], "lr must be above 0"),
        (["--threads", "0"], "--threads"),
        (["--device", "abacus"], "device"),
    ],
)
def test_bad_options_are_errors_and_leave_nothing_behind(tmp_path: Path, options: list[str], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        call(*FAST, "-o", str(tmp_path / "run"), *options)
    assert not (tmp_path / "run").exists()


def test_missing_data_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path / "empty"))
    with pytest.raises(LingraftError, match="mnist"):
        call("train", "--data", "mnist", "--model", "conv-big", "-o", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_error_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lingraft", *FAST, "--epochs", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=ONE_THREAD,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: epochs must be at least 1")
    assert "Traceback" not in done.stderr
