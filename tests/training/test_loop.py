"""The training loop: what it writes, how it goes on, and how it stops."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_runs import assert_same_run, tensors_of
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
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
    train_network,
)
from lingraft.training.standard import StandardLoss

Train = Callable[..., tuple[nn.Module, History]]


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path, train_few: Train) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train_few(tmp_path / name, seed=seed, epochs=1)
        torch.rand(7)  # the state of torch's own generator does not matter
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert any(not torch.equal(v, tensors_of(tmp_path / "c")[k]) for k, v in tensors_of(tmp_path / "a").items())


def test_training_leaves_the_random_state_of_torch_alone(tmp_path: Path, train_few: Train) -> None:
    train_few(tmp_path / "a", epochs=1)
    after_training = torch.rand(3)
    torch.manual_seed(0)
    zoo.build("digits-cnn")
    assert torch.equal(after_training, torch.rand(3))


def test_what_is_written(tmp_path: Path, train_few: Train) -> None:
    folder = tmp_path / "run"
    model, history = train_few(folder)
    records = read_lines(folder / "history.jsonl")
    assert [record["epoch"] for record in records] == [1, 2, 3]
    for record, epoch in zip(records, history.epochs, strict=True):
        assert Epoch.of(record) == epoch
        assert 0 <= record["ra"] <= record["sa"] <= 1
        assert {"loss", "lr", "seconds", "adversarial_accuracy", "grad_align", "overfitting"} <= record.keys()
    description = json.loads((folder / "model.json").read_text())
    assert (description["architecture"], description["data"], description["eps"]) == ("digits-cnn", "digits", 0.1)
    loaded = lingraft.load(folder)
    assert not loaded.training
    for a, b in zip(model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not list(folder.glob(".*"))


def test_the_best_epoch_is_kept(
    tmp_path: Path, few_digits: tuple[ImageSet, ImageSet], description: ModelDescription
) -> None:
    """The second epoch learns; the third destroys the network."""

    def before_epoch(epoch: int) -> None:
        if epoch == 2:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()

    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    plan = Plan(
        TrainingConfig(0.05, schedule="step", epochs=3, batch=32, validation_steps=2),
        loss=StandardLoss(),
        groups=[{"params": list(model.parameters()), "lr": 0.05}],
        settings={},
        before_epoch=before_epoch,
    )
    history = fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), on_epoch=())
    assert history.best.epoch == 2
    assert history.epochs[2].ra < history.best.ra
    kept = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    assert any(float(value.abs().max()) > 0 for name, value in kept.items() if name.endswith("weight"))


def loss_that_turns_nan(after: int) -> Callable[..., tuple[Tensor, Figures]]:
    calls = 0

    def loss(model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Figures]:
        nonlocal calls
        calls += 1
        value, figures = StandardLoss()(model, images, labels, generator)
        return (value * float("nan") if calls > after else value), figures

    return loss


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, few_digits: tuple[ImageSet, ImageSet], description: ModelDescription
) -> None:
    model = zoo.build("digits-cnn")
    plan = Plan(
        TrainingConfig(0.0, schedule="step", epochs=5, batch=64),
        loss=loss_that_turns_nan(after=4),  # 3 batches an epoch
        groups=[{"params": list(model.parameters()), "lr": 0.01}],
        settings={},
    )
    with pytest.raises(LingraftError, match=r"nan in epoch 2, step 2.*checkpoint of epoch 1 is kept.*--lr"):
        fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), on_epoch=())
    assert len(read_lines(tmp_path / "history.jsonl")) == 1
    assert all(bool(torch.isfinite(value).all()) for value in tensors_of(tmp_path).values())
    lingraft.load(tmp_path)


def test_a_learning_rate_that_is_far_too_high_is_a_clear_error(tmp_path: Path, train_few: Train) -> None:
    with pytest.raises(LingraftError, match="training diverged"):
        train_few(tmp_path, lr=1e6, schedule="step", epochs=10)


def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, few_digits: tuple[ImageSet, ImageSet], description: ModelDescription
) -> None:
    """The last step of an epoch may ruin the weights after its loss was still finite."""

    def loss(model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Figures]:
        value, figures = StandardLoss()(model, images, labels, generator)
        return value * 3e38, figures

    model = zoo.build("digits-cnn")
    plan = Plan(
        TrainingConfig(0.0, schedule="step", epochs=1, batch=192),
        loss=loss,
        groups=[{"params": list(model.parameters()), "lr": 1e30}],
        settings={},
    )
    with pytest.raises(LingraftError, match="training diverged"):
        fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), on_epoch=())
    assert all(bool(torch.isfinite(value).all()) for value in load_file(tmp_path / "checkpoint.safetensors").values())


def test_data_that_does_not_fit_the_model(
    tmp_path: Path, few_digits: tuple[ImageSet, ImageSet], description: ModelDescription
) -> None:
    config = TrainingConfig(0.1, epochs=1)
    wrong = description.model_copy(update={"input_shape": (3, 32, 32)})
    with pytest.raises(LingraftError, match=r"\(3, 32, 32\).*\(1, 8, 8\)"):
        train_network(zoo.build("digits-cnn"), TrainingData(*few_digits), config, Destination(Run(tmp_path), wrong))
    few_classes = description.model_copy(update={"classes": 9})
    with pytest.raises(LingraftError, match=r"9 classes.*label is 9"):
        train_network(
            zoo.build("digits-cnn"), TrainingData(*few_digits), config, Destination(Run(tmp_path), few_classes)
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_robust_training_makes_robust(tmp_path: Path, description: ModelDescription) -> None:
    """Thresholds far above chance (0.1) and far below what longer training reaches (0.98 and 0.84)."""
    from lingraft.attack.evaluation import Attack, evaluate
    from lingraft.data import load

    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    config = TrainingConfig(0.1, epochs=8, batch=64, lr=0.05, schedule="one-cycle", validation_steps=3)
    digits = TrainingData(load("digits", "train"), load("digits", "validation"))
    train_network(model, digits, config, Destination(Run(tmp_path), description))
    result = evaluate(model, load("digits", "test"), Attack(0.1, steps=10, restarts=2))
    assert result.sa > 0.9
    assert result.ra > 0.65
    assert result.ra <= result.sa
