"""The table of operations that the command prints and the documentation shows is made from the code."""

import json
import runpy
from pathlib import Path

from typer.testing import CliRunner

import lingraft
from lingraft.cli import app
from lingraft.model import activations
from lingraft.model.operations import KNOWN

ROOT = Path(__file__).parents[2]


def test_every_operation_works_in_every_way() -> None:
    found = {row["name"]: row for row in lingraft.operations()}
    assert len(found) == len(KNOWN) + len(activations.KNOWN)
    assert all(row["verified"] and row["grafted"] and row["certified"] for row in found.values())
    assert all(row["exported"] for row in found.values())
    assert found["relu6"]["onnx"] == ("Clip",)
    assert found["relu6"]["certificate"]
    assert not found["silu"]["certificate"]
    assert "certificate" in found["product"]["note"]
    assert found["convolution"]["torch"] == ("nn.Conv1d", "nn.Conv2d", "conv1d", "conv2d")
    assert found["convolution"]["certificate"]
    assert not found["expand"]["certificate"]
    assert found["sum of two"]["torch"] == ("+", "add")


def test_the_page_has_the_table_of_the_code() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_operations.py"))
    written = made["written"](made["PAGE"].read_text(encoding="utf-8"))
    table = made["table"]()
    assert written[: len(table)] == table, "python docs/make_operations.py writes it anew"


def test_the_command_prints_it() -> None:
    shown = CliRunner().invoke(app, ["doctor", "--operations"], catch_exceptions=False).stdout
    assert all(name in shown for name in KNOWN)
    found = json.loads(CliRunner().invoke(app, ["doctor", "--operations", "--json"], catch_exceptions=False).stdout)
    assert [row["name"] for row in found] == [row["name"] for row in lingraft.operations()]
