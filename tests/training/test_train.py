"""Training into a run folder that may hold something already."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_runs import assert_same_run
from torch import nn

from lingraft import LingraftError
from lingraft.model import zoo
from lingraft.runs import Run
from lingraft.training import (
    History,
)

Train = Callable[..., tuple[nn.Module, History]]


def test_a_finished_run_is_left_alone(tmp_path: Path, train_few: Train) -> None:
    folder = tmp_path / "run"
    model, _ = train_few(folder, epochs=2)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again, history = train_few(folder, epochs=2)
    assert history.resumed == len(history.epochs) == 2
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_other_settings_are_refused_and_named(tmp_path: Path, train_few: Train) -> None:
    train_few(tmp_path / "run", epochs=1)
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    with pytest.raises(LingraftError, match=r"lr: 0.05 there, 0.01 now.*-o.*--restart"):
        train_few(tmp_path / "run", epochs=1, lr=0.01)
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before


def test_restart_starts_over(tmp_path: Path, train_few: Train) -> None:
    folder = tmp_path / "run"
    train_few(folder, epochs=2)
    (folder / "summary.json").write_text('{"evaluation": {}}')
    train_few(folder, epochs=1, lr=0.01, restart=True)
    train_few(tmp_path / "fresh", epochs=1, lr=0.01)
    assert_same_run(folder, tmp_path / "fresh")
    assert not (folder / "summary.json").exists()


def test_a_model_that_was_not_trained_here_is_not_written_over(tmp_path: Path, train_few: Train) -> None:
    Run(tmp_path).save_weights(zoo.build("digits-cnn"))
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(LingraftError, match="holds a model already"):
        train_few(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
