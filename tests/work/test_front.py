"""The search for a front from Python."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import lingraft
from lingraft.files import read_lines
from lingraft.work.front import LEAST_TESTED

QUICK: dict[str, Any] = {
    "eps": "0.05", "first_epochs": 1, "epochs": 1, "validation_images": 2, "validation_timeout": 0.2,
    "images": 2, "timeout": 0.2, "workers": 0, "threads": 1,
}  # fmt: skip


@pytest.mark.slow
def test_without_time_settings_are_left_out_and_with_it_they_follow(tmp_path: Path) -> None:
    rows = ["FAT, trained on", "FAT"]
    asked = {**QUICK, "images": 24, "row": rows, "out": tmp_path}
    found = lingraft.front("digits-cnn", "digits", hours=1e-5, **asked)
    assert [(each.name, each.images) for each in found.tested] == [("FAT", LEAST_TESTED)]
    assert found.left_out == ["FAT, trained on"]
    found = lingraft.front("digits-cnn", "digits", hours=1.0, **asked)
    assert {each.images for each in found.tested} == {24}
    assert found.left_out == []
    (points,) = found.rounds
    assert [point.name for point in points] == ["FAT", "FAT, trained on"]
    assert len(read_lines(tmp_path / "stages.jsonl")) == 2  # it starts from the network of FAT, which was there
    grafted = lingraft.Run(points[1].run)
    assert grafted.describe().parent == points[0].run
    assert grafted.summary().grafting.settings["method"] == "baseline"


@pytest.mark.slow
def test_the_time_for_the_radius_to_grow_is_of_the_epochs_that_there_are(tmp_path: Path) -> None:
    row = "MTL-IBP, α = 0.0005, by SGD"
    found = lingraft.front("digits-cnn", "digits", hours=1.0, **QUICK, row=[row], out=tmp_path)
    settings = yaml.safe_load(lingraft.Run(found.tested[0].run).settings_path.read_text())
    assert (settings["epochs"], settings["ramp"], settings["optimizer"]) == (1, 0, "sgd")
