"""A data set of one's own: registered once, known everywhere that the name of one is taken."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lingraft
from lingraft.cli import app
from lingraft.data import DATASETS, DataSpec, fetch, inventory, load, register


def read(part: str, folder: Path) -> lingraft.ImageSet:
    with np.load(folder / f"mine-{part}.npz") as arrays:
        return lingraft.ImageSet.of((arrays["images"], arrays["labels"]))


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataSpec]:
    """30 + 12 images of two classes, light and dark."""
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path))
    for part, count in (("train", 30), ("test", 12)):
        labels = np.arange(count) % 2
        images = np.broadcast_to(0.2 + 0.6 * labels[:, None, None, None], (count, 1, 8, 8)).astype(np.float32)
        np.savez(tmp_path / f"mine-{part}.npz", images=images, labels=labels)
    spec = DataSpec(
        name="mine", title="light and dark", input_shape=(1, 8, 8), class_names=("dark", "light"),
        mean=(0.5,), std=(0.25,), eps=0.02, validation_images=10, read=read,
    )  # fmt: skip
    register(spec)
    yield spec
    del DATASETS["mine"]


def test_it_is_divided_and_listed_like_the_others(mine: DataSpec, tmp_path: Path) -> None:
    assert [len(load("mine", split)) for split in ("train", "validation", "test")] == [20, 10, 12]
    holding = inventory()[-1]
    assert (holding.name, holding.state, holding.train, holding.remarks) == ("mine", "complete", 20, ())
    (tmp_path / "mine-test.npz").unlink()
    (holding,) = inventory(["mine"])
    assert (holding.state, holding.train, holding.test) == ("missing", 20, None)
    with pytest.raises(lingraft.LingraftError, match="nobody has said where mine can be fetched from"):
        fetch("mine")


@pytest.mark.slow
def test_commands_know_it_and_its_radius(mine: DataSpec, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = CliRunner().invoke(
        app, ["train", "--data", "mine", "--model", "digits-cnn", "--epochs", "1", "--batch", "10", "-o", str(run)],
        catch_exceptions=False,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    model = json.loads((run / "model.json").read_text())
    assert (model["data"], model["eps"], model["classes"], model["mean"]) == ("mine", 0.02, 2, [0.5])
    verified = CliRunner().invoke(
        app, ["verify", str(run), "--images", "4", "--workers", "0", "--json"], catch_exceptions=False
    )
    assert json.loads(verified.stdout)["images"] == 4


def test_errors_name_it(mine: DataSpec) -> None:
    with pytest.raises(lingraft.LingraftError, match="cifar10, mine"):
        load("nothing", "test")


def test_names_of_lingraft_are_taken_and_nonsense_is_refused(mine: DataSpec) -> None:
    values = {**vars(mine)}
    with pytest.raises(lingraft.LingraftError, match="'mnist' is lingraft's own"):
        register(DataSpec(**{**values, "name": "mnist"}))
    with pytest.raises(lingraft.LingraftError, match="one for each channel"):
        DataSpec(**{**values, "mean": (0.1, 0.2, 0.3)})
    with pytest.raises(lingraft.LingraftError, match="for validation"):
        DataSpec(**{**values, "validation_images": 0})
