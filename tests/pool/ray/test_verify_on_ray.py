"""`lingraft verify --ray`: the files and figures of a run that was verified in one process, certificates too."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.data import load
from lingraft.files import read_lines
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run

#: What depends on the speed of the machine, and on where the run is.
TIMES = ("run", "time", "curve", "domains")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A network of the zoo, trained for an epoch."""
    torch.manual_seed(0)
    model, data = zoo.build("digits-cnn"), load("digits", "train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for index in torch.randperm(len(data)).split(64):
        optimizer.zero_grad()
        F.cross_entropy(model(data.pixels(index)), data.labels[index]).backward()
        optimizer.step()
    run = Run(tmp_path / "run")
    run.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.03)
    )
    run.save_weights(model)
    return run


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
