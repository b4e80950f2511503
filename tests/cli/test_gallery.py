"""`lingraft gallery`, and its names where a command takes a run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.runs.gallery import NETWORKS


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_it_lists_what_is_proven():
    rows = json.loads(run("gallery", "--json"))
    assert [row["name"] for row in rows] == [f"gallery:{name}" for name in NETWORKS]
    text = run("gallery")
    for row in rows:
        assert f"{row['va']:.1%}" in text
    table = text.split("\ngallery:")[0]  # below it whole sentences follow
    assert max(map(len, table.splitlines())) <= 80


def test_a_command_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path))
    found = json.loads(run("verify", "gallery:digits-grafted50", "--images", "2", "--workers", "0", "--json"))
    assert found["images"] == 2
    assert "digits-cnn" in run("show", "gallery:digits-grafted50")
