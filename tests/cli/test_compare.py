"""`lingraft compare`: side by side with another verifier, and loud when they contradict each other."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft import LingraftError
from lingraft.cli import app
from lingraft.files import read_lines
from lingraft.formats.answer import read_counterexample
from lingraft.work.vnncomp.other_verifiers import find_tool

pytestmark = pytest.mark.slow

SMALL, LARGE = "0.002", "0.2"


@pytest.fixture(scope="module")
def run(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(trained_run, tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests with the small radius write, so that lingraft answers only once."""
    return tmp_path_factory.mktemp("compare")


def compare(run: Path, *arguments: object):
    result = CliRunner().invoke(app, ["compare", str(run), "--images", "0:3", *map(str, arguments)])
    if isinstance(result.exception, LingraftError):
        return result, result.exception
    assert result.exit_code == 0, result.output
    return result, None


@pytest.fixture
def stand_in(tmp_path: Path):
    """stand_in(lines): a program that prints these, as Marabou would, whatever it is asked."""

    def make(lines: str, code: int = 0) -> str:
        path = tmp_path / "program.py"
        path.write_text(f"import sys\nprint({lines!r})\nsys.exit({code})\n")
        return f"{sys.executable} {path}"

    return make


def test_marabou(run, place) -> None:
    if find_tool("marabou", None)[1] is None:
        pytest.skip("Marabou is not installed: pip install 'lingraft[marabou]'")
    result, _ = compare(run, "--against", "marabou", "--eps", SMALL, "--out", place, "--json")
    figures = json.loads(result.stdout)
    assert figures["properties"] == len(figures["instances"]) > 0
    assert figures["ours"] == figures["theirs"] == {"unsat": figures["properties"]}
    assert figures["contradictions"] == []
    assert figures["theirs_seconds"] > 0
    before = len(read_lines(place / "marabou" / "answers.jsonl"))
    table, _ = compare(run, "--against", "marabou", "--eps", SMALL, "--out", place)
    assert len(read_lines(place / "marabou" / "answers.jsonl")) == before, "answers are used again"
    for text in ("image_0", "unsat", f"decided {before} of {before}"):
        assert text in table.stdout


def test_a_contradiction_is_an_error_and_saved(run, tmp_path, stand_in) -> None:
    """It says unsat where lingraft has a counterexample."""
    tool = stand_in("unsat")
    result, error = compare(run, "--against", "marabou", "--tool", tool, "--eps", LARGE, "--out", tmp_path / "c")
    assert "contradict each other" in str(error)
    assert "contradiction" in result.stdout
    saved = sorted((tmp_path / "c" / "contradictions").iterdir())
    assert saved
    assert str(saved[0]) in str(error)
    assert {path.name for path in saved[0].iterdir()} >= {"network.onnx", "counterexample.txt", "answers.json"}
    assert len(list(saved[0].glob("*.vnnlib"))) == 1
    assert read_counterexample((saved[0] / "counterexample.txt").read_text(), 64) is not None


def test_their_counterexample_is_replayed(run, place, stand_in) -> None:
    """It says sat with an input that is no counterexample: noted, but no contradiction."""
    tool = stand_in("sat\nInput assignment:\n" + "".join(f"\tx{i} = 0.5\n" for i in range(64)))
    result, error = compare(run, "--against", "marabou", "--tool", tool, "--eps", SMALL, "--out", place, "--json")
    assert error is None
    for instance in json.loads(result.stdout)["instances"]:
        assert (instance["ours_answer"], instance["theirs_answer"]) == ("unsat", "sat")
        assert instance["theirs_reason"] == "its counterexample is none when replayed"


def test_a_tool_that_fails(run, place, stand_in) -> None:
    tool = stand_in("Segmentation fault", 3)
    result, _ = compare(run, "--against", "neuralsat", "--tool", tool, "--eps", SMALL, "--out", place, "--json")
    found = json.loads(result.stdout)
    assert found["theirs"] == {"error": found["properties"]}
    assert found["instances"][0]["theirs_reason"] == "exit code 3: Segmentation fault"


def test_a_tool_that_is_not_there(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _, error = compare(run, "--against", "alpha-beta-crown", "--out", tmp_path / "c")
    assert "alpha-beta-crown was not found" in str(error)
    for name in ("instances.csv", "onnx/network.onnx", "vnnlib"):
        assert str(tmp_path / "c" / name) in str(error)
        assert (tmp_path / "c" / name).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "marabu"], "Did you mean 'marabou'"),
        (["--against", "marabou", "--tool", "/nowhere/Marabou"], "not a program"),
        (["--against", "marabou", "--eps", "2"], "whole pixel range"),
        (["--against", "marabou", "--timeout", "0"], "time limit"),
    ],
)
def test_mistakes(run, arguments, message) -> None:
    _, error = compare(run, *arguments)
    assert message in str(error)
    assert not (run / "compare").exists()
