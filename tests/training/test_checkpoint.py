"""Checkpoints: training goes on from them as if it had not stopped, and damaged ones are errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import assert_same_run
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.training import (
    METHODS,
    History,
)

Train = Callable[..., tuple[nn.Module, History]]


class Stop(Exception):
    """Interrupts training."""


def stop_after(epoch: int) -> Callable[[History], None]:
    def on_epoch(done: History) -> None:
        if done.last.epoch == epoch:
            raise Stop

    return on_epoch


@pytest.mark.parametrize("method", ["fat", "pgd", "trades", "ibp", "crown-ibp", "mtl-ibp"])
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, train_few: Train, method: str) -> None:
    settings: dict[str, Any] = {"method": method, "attack_steps": 2}
    if METHODS[method].certified:
        settings |= {"optimizer": "adam", "gradient_clip": 5.0, "lr": 0.002, "warm_up": 1, "ramp": 1}
    whole, history = train_few(tmp_path / "whole", **settings)
    for epoch in (1, 2):
        with pytest.raises(Stop):
            train_few(tmp_path / "parts", on_epoch=stop_after(epoch), **settings)
    parts, resumed = train_few(tmp_path / "parts", **settings)
    assert (history.resumed, resumed.resumed) == (0, 2)
    assert len(resumed.epochs) == 3
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x10\x00\x00\x00\x00\x00\x00\x00{}              "])
def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path: Path, train_few: Train, damage: bytes) -> None:
    train_few(tmp_path / "run", epochs=1)
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(damage)
    with pytest.raises(LingraftError, match=r"checkpoint\.safetensors.*--restart"):
        train_few(tmp_path / "run", epochs=1)
    lingraft.load(tmp_path / "run")  # the model itself is still there


def test_lost_history_and_weights_come_back_from_the_checkpoint(tmp_path: Path, train_few: Train) -> None:
    settings: dict[str, Any] = {"epochs": 2, "batch": 16, "eps": 0.01}
    _, history = train_few(tmp_path / "whole", **settings)
    assert history.best.epoch == 2
    train_few(tmp_path / "run", **settings)
    (tmp_path / "run" / "history.jsonl").write_text('{"epoch": 1, "lo')
    (tmp_path / "run" / "model.safetensors").unlink()
    train_few(tmp_path / "run", **settings)
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_weights_that_are_lost_for_good_are_an_error(tmp_path: Path, train_few: Train) -> None:
    settings: dict[str, Any] = {"epochs": 2, "lr": 1e-30, "validation_images": 24}  # nothing gets better
    _, history = train_few(tmp_path, **settings)
    assert history.best.epoch == 1
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(LingraftError, match=r"model\.safetensors is missing"):
        train_few(tmp_path, **settings)
