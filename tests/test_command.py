"""Run folders keep the commands that wrote to them."""

import shlex
from pathlib import Path

from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.command import current, running
from lingraft.runs import Run, versions


def test_a_command_is_kept_once(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with running("lingraft train --data 'a b'"):
        run.add_to_summary("one", {})
        run.add_to_summary("two", {})
    with running("lingraft evaluate"):
        run.keep_command()
    kept = run.commands()
    assert [record["command"] for record in kept] == ["lingraft train --data 'a b'", "lingraft evaluate"]
    assert kept[0]["versions"] == versions()
    assert kept[0]["started"].endswith("+00:00")


def test_from_python_there_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.add_to_summary("one", {})
    assert current() is None
    assert run.commands() == []


def test_it_is_what_was_typed(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    arguments = ["train", "--data", "digits", "--model", "digits-cnn", "--epochs", "1", "-o", str(run)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    (record,) = Run(run).commands()
    assert shlex.split(record["command"]) == ["lingraft", *arguments]
    assert current() is None
