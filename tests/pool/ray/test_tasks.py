"""Calls side by side on Ray."""

import os
from pathlib import Path
from types import ModuleType

import pytest

import lingraft
from lingraft import LingraftError
from lingraft.files import read_lines
from lingraft.pool.ray.tasks import side_by_side


def test_each_call_is_made_in_this_folder_and_says_how_it_failed(
    ray: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    errors = side_by_side("auto", "making folders", lingraft.load, [("missing",), ("missing-too",)])
    assert all(isinstance(error, LingraftError) for error in errors)
    assert "missing-too" in str(errors[1])
    assert side_by_side("auto", "making folders", os.mkdir, [("a",), ("b",)]) == [None, None]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    with pytest.raises(LingraftError, match="FileExistsError"):
        side_by_side("auto", "making folders", os.mkdir, [("a",), ("c",)])


@pytest.mark.slow
def test_a_front_is_trained_on_ray(ray: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    how = {"eps": "0.05", "first_epochs": 1, "epochs": 1, "validation_images": 2, "validation_timeout": 0.2}
    rows = ["FAT", "FAT, trained on"]  # the second one starts from the first
    found = lingraft.front(
        "digits-cnn", "digits", out="front", row=rows, ray="auto", images=2, timeout=0.2, threads=1, **how
    )
    assert [point.name for point in found.rounds[0]] == rows
    stages = read_lines(tmp_path / "front" / "stages.jsonl")
    assert [stage["command"] for stage in stages] == ["train", "graft"]
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "front" / "runs").glob("*/model.safetensors")}
    alone = lingraft.front(
        "digits-cnn", "digits", out="front", row=rows, workers=0, images=2, timeout=0.2, threads=1, **how
    )
    assert [point.name for point in alone.rounds[0]] == rows
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items()), "it was trained again"
