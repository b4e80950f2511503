"""Which epoch was the best, and which one collapsed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lingraft.data import ImageSet
from lingraft.files import read_lines
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run
from lingraft.training import (
    Destination,
    Epoch,
    Figures,
    History,
    Plan,
    TrainingConfig,
    TrainingData,
    fit,
)
from lingraft.training.history import has_collapsed
from lingraft.training.standard import StandardLoss


def test_the_best_epoch_is_one_at_the_full_radius_with_most_certified() -> None:
    epochs = [
        Epoch(number, loss=1.0, sa=0.9, ra=ra, lr=0.1, seconds=1.0, certified=certified)
        for number, (ra, certified) in enumerate([(0.9, 0.0), (0.8, 0.7), (0.7, 0.6), (0.6, 0.65)], start=1)
    ]
    assert History(epochs).best.epoch == 1
    assert History(epochs, keep_from=2).best.epoch == 3
    assert History(epochs, keep_from=2, keep_certified=True).best.epoch == 4
    assert all(Epoch.of(epoch.as_dict()) == epoch for epoch in epochs)
    assert "certified by intervals 70.00%" in str(epochs[1])


def test_catastrophic_overfitting_is_noticed(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    few_digits: tuple[ImageSet, ImageSet],
    description: ModelDescription,
) -> None:
    """Real or not does not matter to the report: the robust accuracy breaks down while the training loss falls."""
    good = Epoch(1, loss=1.0, sa=0.9, ra=0.8, lr=0.1, seconds=1.0)
    assert has_collapsed(ra=0.1, loss=0.5, earlier=[good])
    assert not has_collapsed(ra=0.5, loss=0.5, earlier=[good])  # a smaller drop
    assert not has_collapsed(ra=0.1, loss=1.5, earlier=[good])  # the loss grew too: training as a whole went wrong
    assert not has_collapsed(ra=0.0, loss=1.0, earlier=[])
    guessing = Epoch(1, loss=2.3, sa=0.1, ra=0.05, lr=0.1, seconds=1.0)
    assert not has_collapsed(ra=0.0, loss=2.2, earlier=[guessing])  # there was nothing to lose yet

    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    broken = False

    def before_epoch(epoch: int) -> None:
        nonlocal broken
        if epoch == 5:
            broken = True
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()

    def loss(model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Figures]:
        value, figures = StandardLoss()(model, images, labels, generator)
        return value * 1e-4 if broken else value, figures

    plan = Plan(
        TrainingConfig(0.02, schedule="step", epochs=6, batch=16),
        loss=loss,
        groups=[{"params": list(model.parameters()), "lr": 0.05}],
        settings={},
        before_epoch=before_epoch,
    )
    history = fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), on_epoch=())
    assert [epoch.overfitting for epoch in history.epochs] == [False] * 5 + [True]
    assert read_lines(tmp_path / "history.jsonl")[5]["overfitting"] is True
    assert "catastrophic overfitting" in capsys.readouterr().err
    assert history.best.epoch <= 5
