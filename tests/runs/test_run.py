"""Run folders."""

from pathlib import Path

import pytest
import torch
from small_runs import untrained_run

import lingraft
from lingraft import LingraftError
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run


def test_load_gives_the_model_back(tmp_path: Path) -> None:
    run, model = untrained_run(tmp_path / "run")
    loaded = lingraft.load(tmp_path / "run")
    images = torch.rand(4, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(model(images), loaded(images))
    assert not loaded.training
    assert run.describe().versions["lingraft"] == lingraft.__version__


def test_a_model_of_your_own(tmp_path: Path) -> None:
    run, _ = untrained_run(tmp_path)
    run.write_description(ModelDescription(architecture=None, input_shape=(1, 8, 8), classes=10))
    with pytest.raises(LingraftError, match="Pass it"):
        lingraft.load(tmp_path)
    own = zoo.build("digits-cnn")
    assert lingraft.load(tmp_path, model=own) is own
    with pytest.raises(LingraftError, match="do not fit"):
        lingraft.load(tmp_path, model=zoo.build("sigmoid-cnn"))


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(LingraftError, match="lingraft train"):
        lingraft.load(tmp_path / "nothing")


def test_damaged_and_missing_weights(tmp_path: Path) -> None:
    run, model = untrained_run(tmp_path)
    whole = run.weights_path.read_bytes()
    run.weights_path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LingraftError, match="damaged"):
        lingraft.load(tmp_path)
    run.weights_path.unlink()
    with pytest.raises(LingraftError, match="missing"):
        lingraft.load(tmp_path)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    run.save_weights(model)
    with pytest.raises(LingraftError, match="NaN"):
        lingraft.load(tmp_path)


def test_summary_sections_are_replaced_one_by_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add_to_summary("a", {"x": 1})
    run.add_to_summary("b", {"y": 2})
    run.add_to_summary("a", {"z": 3})
    assert run.summary().as_dict() == {"a": {"z": 3}, "b": {"y": 2}}


def test_an_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LingraftError, match="cannot write"):
        untrained_run(tmp_path / "file")


def test_leftovers_of_a_killed_save_are_removed(tmp_path: Path) -> None:
    run, _ = untrained_run(tmp_path)
    (tmp_path / ".checkpoint.safetensors.123.part").write_bytes(b"half")
    run.remove_parts()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
