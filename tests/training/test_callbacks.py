"""What is called after each epoch, and how it ends training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lingraft import LingraftError
from lingraft.files import read_lines
from lingraft.runs import Run
from lingraft.training import EarlyStopping, Epoch, History, TensorBoard, print_epoch
from lingraft.training.checkpoint import Checkpoint

Train = Callable[..., tuple[nn.Module, History]]


def history_of(*robust: float) -> History:
    return History([Epoch(i, 1.0, 0.9, ra, 0.1, 1.0) for i, ra in enumerate(robust, 1)])


def test_early_stopping_waits_for_so_many_epochs_without_a_better_one():
    stopping = EarlyStopping(patience=2)
    assert [stopping(history_of(*[0.5, 0.6, 0.6, 0.5, 0.7][:n])) for n in range(1, 6)] == [
        False, False, False, True, False,
    ]  # fmt: skip
    with pytest.raises(LingraftError, match="at least 1"):
        EarlyStopping(0)


def test_true_ends_training_and_the_run_is_finished(tmp_path: Path, train_few: Train):
    """The first epochs are those of the whole run; a second call trains nothing, and calls nothing."""
    seen: list[int] = []

    def stop_at_two(history: History) -> bool:
        seen.append(history.last.epoch)
        return history.last.epoch == 2

    train_few(tmp_path / "whole", epochs=4)
    model, history = train_few(tmp_path / "run", epochs=4, on_epoch=[stop_at_two, lambda history: False])
    assert (seen, len(history.epochs), history.resumed) == ([1, 2], 2, 0)
    assert read_lines(tmp_path / "run" / "history.jsonl") == [epoch.as_dict() for epoch in history.epochs]
    first = [epoch.as_dict() for epoch in history.epochs]
    theirs = read_lines(tmp_path / "whole" / "history.jsonl")[:2]
    assert [{**e, "seconds": 0} for e in first] == [{**e, "seconds": 0} for e in theirs]
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    assert Checkpoint.load(Run(tmp_path / "run")).stopped
    _, again = train_few(tmp_path / "run", epochs=4, on_epoch=stop_at_two)
    assert (seen, len(again.epochs), again.resumed) == ([1, 2], 2, 2)
    _, anew = train_few(tmp_path / "run", epochs=4, restart=True)
    assert len(anew.epochs) == 4


def test_only_true_ends_training(tmp_path: Path, train_few: Train):
    _, history = train_few(tmp_path, epochs=2, on_epoch=lambda history: 1)
    assert len(history.epochs) == 2


@pytest.mark.parametrize("wrong", [3, None, [print_epoch, "text"]])
def test_what_cannot_be_called_is_refused_before_any_work(tmp_path: Path, train_few: Train, wrong: Any):
    with pytest.raises(LingraftError, match="on_epoch must be a function"):
        train_few(tmp_path / "run", on_epoch=wrong)
    assert not (tmp_path / "run").exists()


def test_tensorboard_reads_what_was_written(tmp_path: Path, train_few: Train):
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    _, history = train_few(tmp_path / "run", epochs=2, on_epoch=TensorBoard(tmp_path / "board"))
    events = reader.EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert {"loss", "sa", "ra", "lr", "grad_align"} <= set(events.Tags()["scalars"])
    for name in ("loss", "ra"):
        read = [(event.step, event.value) for event in events.Scalars(name)]
        assert read == [(e.epoch, pytest.approx(getattr(e, name))) for e in history.epochs]


def test_without_tensorboard_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(LingraftError, match="pip install tensorboard"):
        TensorBoard(tmp_path)
