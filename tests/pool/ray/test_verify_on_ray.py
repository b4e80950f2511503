"""`lingraft verify --ray`: the files and figures of a run that was verified in one process, certificates too."""

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.files import read_lines
from lingraft.runs import Run

#: What depends on the speed of the machine, and on where the run is.
TIMES = ("run", "time", "curve", "domains")


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Run:
    return Run(shutil.copytree(trained_run, tmp_path / "run"))


def call(run: Run, *arguments: str) -> dict[str, Any]:
    command = ["verify", str(run.path), "--timeout", "600", "--images", "8", "--json", *arguments]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return {name: value for name, value in json.loads(result.stdout).items() if name not in TIMES}


def test_the_same_files_and_figures(ray: ModuleType, run: Run) -> None:
    expected = call(run, "--workers", "0", "--check")
    alone = {record["index"]: record["verdict"] for record in read_lines(run.verdicts_path)}
    assert expected["verified"] > 0
    assert expected["falsified"] > 0
    assert expected["certificates"]["checked"] == expected["verified"]
    for path in [run.verdicts_path, *(run.path / "certificates").glob("*.cert*")]:
        path.unlink()
    assert call(run, "--ray", "auto", "--workers", "1", "--check") == expected
    records = read_lines(run.verdicts_path)
    assert {record["index"]: record["verdict"] for record in records} == alone
    assert call(run, "--ray", "--check") == expected
    assert read_lines(run.verdicts_path) == records, "a second call finds everything in the file"
