"""`lingraft report`."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.errors import LingraftError
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    torch.manual_seed(0)
    run = Run(tmp_path / "run")
    run.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.1)
    )
    run.save_weights(zoo.build("digits-cnn"))
    return run


@pytest.mark.parametrize(
    ("suffix", "start"), [("html", "<!DOCTYPE html>"), ("md", "| Run"), ("csv", "run,"), ("tex", "%")]
)
def test_the_suffix_says_what_is_written(run: Run, tmp_path: Path, suffix: str, start: str) -> None:
    path = tmp_path / "made" / f"report.{suffix}"
    done = CliRunner().invoke(app, ["report", str(run.path), "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert path.read_text().startswith(start)
    assert "1 run" in done.stdout


def test_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    done = CliRunner().invoke(app, ["report", str(run.path), "-o", str(path), "--json"])
    assert json.loads(done.stdout) == {"report": str(path), "bytes": path.stat().st_size}


def test_no_folder_and_no_run_are_errors(tmp_path: Path) -> None:
    with pytest.raises(LingraftError, match="not a run folder"):
        CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    assert CliRunner().invoke(app, ["report"]).exit_code == 2
