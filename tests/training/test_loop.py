"""The training loop: what it writes, how it goes on, and how it stops."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.data import ImageSet
from lingraft.files import read_lines
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run
from lingraft.training import (
    METHODS,
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
from lingraft.training.history import has_collapsed
from lingraft.training.standard import StandardLoss

Train = Callable[..., tuple[nn.Module, History]]


class Stop(Exception):
    """Interrupts training."""


def stop_after(epoch: int) -> Callable[[Epoch], None]:
    def report(done: Epoch) -> None:
        if done.epoch == epoch:
            raise Stop

    return report


def tensors(folder: Path) -> dict[str, Tensor]:
    return {
        f"{file}/{k}": v
        for file in ("checkpoint", "model")
        for k, v in load_file(folder / f"{file}.safetensors").items()
    }


def assert_same_run(one: Path, other: Path) -> None:
    a, b = tensors(one), tensors(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
    histories = [
        [{k: v for k, v in record.items() if k != "seconds"} for record in read_lines(folder / "history.jsonl")]
        for folder in (one, other)
    ]
    assert histories[0] == histories[1]
    assert histories[0]


@pytest.mark.parametrize("method", ["fat", "pgd", "trades", "ibp", "crown-ibp", "mtl-ibp"])
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, train_few: Train, method: str) -> None:
    settings: dict[str, Any] = {"method": method, "attack_steps": 2}
    if METHODS[method].certified:
        settings |= {"optimizer": "adam", "clip": 5.0, "lr": 0.002, "warm_up": 1, "ramp": 1}
    whole, history = train_few(tmp_path / "whole", **settings)
    for epoch in (1, 2):
        with pytest.raises(Stop):
            train_few(tmp_path / "parts", report=stop_after(epoch), **settings)
    parts, resumed = train_few(tmp_path / "parts", **settings)
    assert (history.resumed, resumed.resumed) == (0, 2)
    assert len(resumed.epochs) == 3
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(a, b)


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path, train_few: Train) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train_few(tmp_path / name, seed=seed, epochs=1)
        torch.rand(7)  # the state of torch's own generator does not matter
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert any(not torch.equal(v, tensors(tmp_path / "c")[k]) for k, v in tensors(tmp_path / "a").items())


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
    history = fit(
        model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), report=lambda epoch: None
    )
    assert history.best.epoch == 2
    assert history.epochs[2].ra < history.best.ra
    kept = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    assert any(float(value.abs().max()) > 0 for name, value in kept.items() if name.endswith("weight"))


def test_each_group_has_its_learning_rate(
    tmp_path: Path, few_digits: tuple[ImageSet, ImageSet], description: ModelDescription
) -> None:
    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    first, *rest = model.parameters()
    plan = Plan(
        TrainingConfig(0.0, schedule="cosine", epochs=1),
        loss=StandardLoss(),
        groups=[{"params": [first], "lr": 0.0}, {"params": rest, "lr": 0.01}],
        settings={},
    )
    fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), report=lambda epoch: None)
    assert torch.equal(first, before[0])
    assert all(not torch.equal(a, b) for a, b in zip(rest, before[1:], strict=True))


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
        fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), report=lambda epoch: None)
    assert len(read_lines(tmp_path / "history.jsonl")) == 1
    assert all(bool(torch.isfinite(value).all()) for value in tensors(tmp_path).values())
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
        fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), report=lambda epoch: None)
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
    history = fit(
        model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), report=lambda epoch: None
    )
    assert [epoch.overfitting for epoch in history.epochs] == [False] * 5 + [True]
    assert read_lines(tmp_path / "history.jsonl")[5]["overfitting"] is True
    assert "catastrophic overfitting" in capsys.readouterr().err
    assert history.best.epoch <= 5


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
