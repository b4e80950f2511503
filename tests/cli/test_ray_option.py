"""--ray [ADDRESS]: the address may be left out, wherever the option stands."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import lingraft.pool.place
from lingraft.cli import app
from lingraft.cli.ray_option import ADDRESS
from lingraft.errors import LingraftError
from lingraft.pool.place import Place


@pytest.mark.parametrize("text", ["auto", "local", "10.0.0.1:6379", "head:6379", "ray://head:10001"])
def test_addresses(text: str) -> None:
    assert ADDRESS.fullmatch(text)


@pytest.mark.parametrize("text", ["runs/digits", "run", "", "--images", "C:/runs", "./host:1"])
def test_other_arguments(text: str) -> None:
    assert not ADDRESS.fullmatch(text)


@pytest.mark.parametrize(
    "arguments", [["RUN", "--ray"], ["--ray", "RUN"], ["--ray", "local", "RUN"], ["RUN", "--ray", "head:1"]]
)
def test_the_run_is_not_taken_for_an_address(arguments: list[str], tmp_path: Path) -> None:
    """What is missing is the run, in every order."""
    folder = tmp_path / "run"
    result = CliRunner().invoke(app, ["verify", *[str(folder) if a == "RUN" else a for a in arguments]])
    assert isinstance(result.exception, LingraftError)
    assert str(folder) in str(result.exception)


def test_ray_is_for_runs_only(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["verify", "--onnx", "a.onnx", "--vnnlib", "b.vnnlib", "--ray"])
    assert "without --ray" in str(result.exception)


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingraft.pool.place, "find_spec", lambda name: None)
    with pytest.raises(LingraftError, match=r"pip install 'lingraft\[ray\]'"):
        Place(ray="auto")


def test_there_must_be_a_worker() -> None:
    with pytest.raises(LingraftError, match="at least one worker"):
        Place(0, "auto")
