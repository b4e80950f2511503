"""--config: the settings of one run make another."""

from pathlib import Path

import pytest
import torch
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.cli.config import APART

FAST = ["--data", "digits", "--model", "digits-cnn", "--epochs", "1", "--batch", "256", "--validation-images", "20"]


def call(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = (lingraft.load(path).state_dict() for path in (one, other))
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def options(command: str) -> dict[str, object]:
    """Options that a file of settings may have, and their defaults."""
    return {p.name: p.default for p in get_command(app).commands[command].params if p.name not in APART}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config") / "first"
    call("train", *FAST, "--lr", "0.03", "--milestones", "1,2", "--schedule", "step", "--device", "cpu", "-o", folder)
    return folder


@pytest.mark.slow
def test_the_settings_of_a_run_repeat_it(trained: Path, tmp_path: Path):
    settings = yaml.safe_load((trained / "settings.yaml").read_text())
    assert settings["lr"] == 0.03
    defaults = options("train")
    assert settings.keys() <= defaults.keys()
    assert {name for name, value in defaults.items() if value is not None} <= settings.keys()
    call("train", "--config", trained / "settings.yaml", "-o", tmp_path / "second")
    assert same_weights(trained, tmp_path / "second")
    assert (tmp_path / "second" / "settings.yaml").read_text() == (trained / "settings.yaml").read_text()


@pytest.mark.slow
def test_what_is_typed_wins(trained: Path, tmp_path: Path):
    call("train", "--lr", "0.01", "--config", trained / "settings.yaml", "-o", tmp_path / "second", "--seed", "3")
    assert yaml.safe_load((tmp_path / "second" / "settings.yaml").read_text())["lr"] == 0.01
    assert lingraft.Run(tmp_path / "second").describe().seed == 3
    assert not same_weights(trained, tmp_path / "second")


@pytest.mark.slow
def test_grafting_is_repeated_with_its_run(trained: Path, tmp_path: Path):
    how = [
        "--epochs",
        1,
        "--score-images",
        20,
        "--bound-images",
        2,
        "--images",
        20,
        "--gamma",
        "2,1",
        "--device",
        "cpu",
    ]
    call("graft", trained, *how, "--ratio", 0.3, "--bounds", "intervals", "-o", tmp_path / "one")
    settings = yaml.safe_load((tmp_path / "one" / "settings.yaml").read_text())
    defaults = {"run" if name == "folder" else name: value for name, value in options("graft").items()}
    assert settings.keys() <= defaults.keys()
    assert {name for name, value in defaults.items() if value is not None} <= settings.keys() | {"run"}
    call("graft", "--config", tmp_path / "one" / "settings.yaml", "-o", tmp_path / "two")
    assert same_weights(tmp_path / "one", tmp_path / "two")
    call("graft", "--config", tmp_path / "one" / "settings.yaml", "--epochs", 0, "-o", tmp_path / "plain")
    assert yaml.safe_load((tmp_path / "plain" / "settings.yaml").read_text())["epochs"] == 0


def test_names_that_a_command_does_not_know_are_errors(tmp_path: Path):
    path = tmp_path / "settings.yaml"
    path.write_text("data: digits\nmodel: digits-cnn\nepoch: 3\nout: somewhere\n")
    with pytest.raises(LingraftError, match="epoch, out"):
        call("train", "--config", path)
    path.write_text("ratio: 0.5\nnetwork: digits-cnn\n")
    with pytest.raises(LingraftError, match="there are not: network"):
        call("graft", "--config", path)


def test_a_value_of_the_wrong_kind_names_its_option(tmp_path: Path):
    path = tmp_path / "settings.yaml"
    path.write_text("data: digits\nmodel: digits-cnn\nepochs: many\n")
    done = CliRunner().invoke(app, ["train", "--config", str(path)])
    assert done.exit_code == 2
    assert "--epochs" in done.output
