"""What the commands that only look are made of, from Python."""

import json
from pathlib import Path

import pytest
import torch

import lingraft
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run


def make(path: Path) -> Run:
    torch.manual_seed(0)
    run = Run(path)
    run.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.01)
    )
    run.save_weights(zoo.build("digits-cnn"))
    return run


def test_runs_are_found_at_every_depth_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    make(tmp_path / "deep" / "one")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.json").write_text("{")
    broken, one = lingraft.list_runs(tmp_path)
    assert (broken.name, broken.rows) == ("broken", [])
    assert "model.json" in broken.as_dicts()[0]["error"]
    assert one.error is None
    assert one.as_dicts() == [{"path": str(tmp_path / "deep" / "one"), **one.rows[0].as_dict()}]
    assert (one.rows[0].data, one.rows[0].eps, one.rows[0].va) == ("digits", 0.01, None)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(lingraft.LingraftError, match="there is no folder"):
        lingraft.list_runs(tmp_path / "nothing")
    assert lingraft.list_runs(tmp_path) == []


def test_a_run_is_shown_as_json(tmp_path: Path) -> None:
    run = make(tmp_path / "one")
    shown = lingraft.show_run(run)
    assert shown == lingraft.show_run(str(run.path)) == json.loads(json.dumps(shown))
    assert shown["model"]["architecture"] == "digits-cnn"
    assert shown["files"]["model.safetensors"] == run.weights_path.stat().st_size


def test_sizes_of_the_zoo_are_those_of_its_networks() -> None:
    listed = {model["name"]: model for model in lingraft.list_models()}
    assert list(listed) == list(zoo.MODELS)
    assert listed["digits-cnn"]["parameters"] == sum(p.numel() for p in zoo.build("digits-cnn").parameters())
