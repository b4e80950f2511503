"""Certified training: its schedules, losses, regularizers and initialization, and what it is for."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft import LingraftError
from lingraft.attack.ball import bounds
from lingraft.attack.evaluation import correct
from lingraft.ball import Ball
from lingraft.data import load
from lingraft.files import read_lines
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run
from lingraft.training import (
    Destination,
    History,
    TrainingConfig,
    TrainingData,
    initialize,
    initialize_for_intervals,
    loss_at,
    make_loss,
    train_network,
    with_preset,
)
from lingraft.training.certified import CertifiedLoss, IntervalTraining, MixedTraining, SmallBoxTraining
from lingraft.training.differentiable import Interval, clean_pass, graph_of, interval_bounds, margin_intervals
from lingraft.training.differentiable.certify import certified_by_intervals
from lingraft.training.differentiable.intervals import IntervalBounds
from lingraft.training.madry import PgdLoss
from lingraft.training.ramp import Ramp
from lingraft.training.small_box import SmallBox
from lingraft.training.standard import StandardLoss
from lingraft.training.step import take_step
from lingraft.training.tightness import balance, tightness

EPS = 0.1


@pytest.fixture
def batch() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return zoo.build("digits-cnn").double(), torch.rand(6, 1, 8, 8).double(), torch.arange(6)


def value_of(loss: Any, batch: tuple[nn.Module, Tensor, Tensor]) -> float:
    model, images, labels = batch
    return float(loss(model, images, labels, torch.Generator().manual_seed(7))[0].detach())


# --- schedules ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 5), st.integers(0, 20), st.floats(0, 30), st.floats(0, 1e-3))
def test_the_radius_is_0_then_grows_then_stays(warm_up: int, length: int, time: float, later: float) -> None:
    ramp = Ramp(warm_up, length)
    assert 0 <= ramp(time) <= ramp(time + later) <= 1
    if length:
        assert ramp(time + later) - ramp(time) <= 2 * later / length + 1e-9  # no jumps
    if time < warm_up:
        assert ramp(time) == 0
    if time >= warm_up + length:
        assert ramp(time) == 1
    assert ramp(math.inf) == 1


def test_the_losses_follow_the_radius() -> None:
    ramp = Ramp(1, 4)
    loss = IntervalTraining(EPS, ramp, kappa=(1.0, 0.5), regularization=0.4, crown=True)
    warm, half, full = (loss.at(time) for time in (0.5, 3.0, 9.0))
    assert isinstance(warm, CertifiedLoss)
    assert isinstance(half, CertifiedLoss)
    assert (warm.weight, warm.crown, warm.regularization) == (0.0, 1.0, 0.4)
    assert warm.eps.eps < 0.002 * EPS
    part = ramp(3.0)
    assert 0.1 < part < 0.9
    assert half.weight == pytest.approx(0.5 * part)
    assert (half.eps.eps, half.crown, half.regularization) == pytest.approx((EPS * part, 1 - part, 0.4 * (1 - part)))
    assert full == CertifiedLoss(Ball.of(EPS), weight=0.5)
    mixed = MixedTraining(EPS, ramp, alpha=0.2, attack_steps=3)
    assert mixed.at(9.0) == CertifiedLoss(Ball.of(EPS), weight=0.2, other=PgdLoss(Ball.of(EPS), 3))
    small = SmallBoxTraining(EPS, ramp, 0.3, attacked_sites=2, attack_steps=4, regularization=0.4)
    grown = CertifiedLoss(Ball.of(EPS), small_box=SmallBox(0.3, 4), attacked_sites=2, attack_steps=4)
    assert small.at(9.0) == grown
    assert small.at(0.5) == replace(grown, eps=Ball.of(EPS).scaled(1e-3), regularization=0.4)


def test_methods_and_their_defaults() -> None:
    for method in ("sabr", "taps", "staps", "ibp", "crown-ibp", "mtl-ibp"):
        config = with_preset("laptop", EPS, method)
        assert config.growth == Ramp(1, 9)
        assert config.learning_rate()(8.0) == pytest.approx(1.0)
        assert (loss_at(make_loss(config), math.inf).weight == 1.0) == (method != "mtl-ibp")  # type: ignore[attr-defined]
        assert isinstance(make_loss(replace(config, eps=0.0)), StandardLoss)
    box, sites = SmallBox(0.2, 3), 2
    for method, expected in (("sabr", (box, 0)), ("taps", (None, sites)), ("staps", (box, sites))):
        small = with_preset("laptop", EPS, method, small_box=0.2, attacked_sites=sites, attack_steps=3)
        last = loss_at(make_loss(small), math.inf)
        assert (last.small_box, last.attacked_sites, last.attack_steps) == (*expected, 3)  # type: ignore[attr-defined]
        assert ("small_box" in small.as_dict(), "attacked_sites" in small.as_dict()) == (
            expected[0] is not None,
            expected[1] > 0,
        )
    assert not {"small_box", "attacked_sites"} & config.as_dict().keys()
    steps = replace(config, schedule="step", epochs=160).learning_rate()
    assert [round(steps(time), 6) for time in (0, 119, 120, 139, 140)] == [1, 1, 0.1, 0.1, 0.01]
    plain = TrainingConfig(EPS)
    own = {"warm_up", "ramp", "kappa", "alpha", "regularization", "optimizer", "gradient_clip"}
    assert not own & plain.as_dict().keys()
    assert own <= config.as_dict().keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_up": 2, "ramp": 8}, "leave none of 10 epochs"),
        ({"warm_up": -1}, "warm_up must be at least 0"),
        ({"kappa": (1.0, 2.0)}, "kappa"),
        ({"alpha": 0.0}, "alpha"),
        ({"small_box": 0.0}, "small_box must be above 0 and at most 1"),
        ({"attacked_sites": -1}, "attacked_sites must be at least 0"),
        ({"gradient_clip": 0.0}, "gradient_clip"),
        ({"regularization": -1.0}, "regularization"),
        ({"optimizer": "adm"}, "unknown optimizer 'adm'.*'adam'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        TrainingConfig(EPS, method="ibp", **{"epochs": 10, **settings})


# --- losses -------------------------------------------------------------------------------------------------------


def test_the_loss_is_a_mix_of_clean_and_worst_cross_entropy(batch: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, images, labels = batch
    graph = graph_of(model)
    margins = margin_intervals(graph, interval_bounds(graph, *bounds(images, EPS)).last, labels).lower
    worst = margins.detach().neg().exp().sum(1).log().mean()
    clean = F.cross_entropy(model(images), labels).detach()
    assert value_of(CertifiedLoss(EPS), batch) == pytest.approx(float(worst))
    assert value_of(CertifiedLoss(EPS, weight=0.3), batch) == pytest.approx(float(0.3 * worst + 0.7 * clean))
    attacked = value_of(PgdLoss(EPS, 3), batch)
    mixed = value_of(CertifiedLoss(EPS, weight=0.3, other=PgdLoss(EPS, 3)), batch)
    assert mixed == pytest.approx(0.3 * float(worst) + 0.7 * attacked)


def test_of_a_share_of_a_batch_the_first_images_are_bounded(batch: tuple[nn.Module, Tensor, Tensor]) -> None:
    """The other terms are those of all images."""
    model, images, labels = batch
    count = len(images) // 2
    share = count / len(images)
    first = value_of(CertifiedLoss(EPS), (model, images[:count], labels[:count]))
    attacked, clean = value_of(PgdLoss(EPS, 3), batch), value_of(StandardLoss(), batch)
    mixed = value_of(CertifiedLoss(EPS, weight=0.3, other=PgdLoss(EPS, 3), share=share), batch)
    assert mixed == pytest.approx(0.3 * first + 0.7 * attacked)
    mixed = value_of(CertifiedLoss(EPS, weight=0.3, share=share), batch)
    assert mixed == pytest.approx(0.3 * first + 0.7 * clean)
    assert value_of(CertifiedLoss(EPS, share=1e-9), batch) == pytest.approx(
        value_of(CertifiedLoss(EPS), (model, images[:1], labels[:1]))
    )


def test_bounds_are_above_the_attack_and_crown_is_tighter_for_a_network_with_wide_intervals(
    batch: tuple[nn.Module, Tensor, Tensor],
) -> None:
    eps = 0.02
    attacked = value_of(PgdLoss(eps, 5), batch)
    crown = value_of(CertifiedLoss(eps, crown=1.0), batch)
    assert value_of(StandardLoss(), batch) <= attacked <= crown
    assert crown < value_of(CertifiedLoss(eps), batch)
    halfway = value_of(CertifiedLoss(eps, crown=0.5), batch)
    assert halfway == pytest.approx((crown + value_of(CertifiedLoss(eps), batch)) / 2)


def test_batch_norm_in_training(batch: tuple[nn.Module, Tensor, Tensor]) -> None:
    """At radius 0 the certified loss is the clean one, and the running statistics move as in a forward pass."""
    _, images, labels = batch
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)]
    model, twin = nn.Sequential(*layers).double(), nn.Sequential(*layers).double()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    certified = value_of(CertifiedLoss(0.0), (model, images, labels))
    after = model[1].running_var.clone()
    twin.load_state_dict(state)
    assert certified == pytest.approx(value_of(StandardLoss(), (twin, images, labels)))
    torch.testing.assert_close(twin[1].running_var, after)
    assert value_of(CertifiedLoss(0.05), (model, images, labels)) > certified


# --- warm-up ------------------------------------------------------------------------------------------------------


def widths(model: nn.Module, images: Tensor) -> list[float]:
    found = interval_bounds(graph_of(model), *bounds(images, 0.01))
    return [(x.upper - x.lower).mean().item() for x in (found.first, *found.sites.values())]


@pytest.mark.parametrize("name", ["conv-big", "resnet-4b"])
def test_initialization_keeps_the_widths_of_intervals(name: str) -> None:
    torch.manual_seed(0)
    images = torch.rand(4, 1, 16, 16)
    kept = widths(initialize_for_intervals(zoo.build(name, (1, 16, 16))), images)
    assert 0.2 * kept[0] < min(kept)
    assert max(kept) < 5 * kept[0]
    usual = widths(initialize(zoo.build(name, (1, 16, 16))), images)
    assert usual[-1] > 1000 * kept[-1]


def test_initialization_leaves_sigmoid_networks_alone() -> None:
    torch.manual_seed(0)
    model = zoo.build("sigmoid-cnn", (1, 8, 8))
    before = [p.detach().clone() for p in model.parameters()]
    initialize_for_intervals(model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_the_regularizers_by_hand() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    graph = graph_of(model)
    first = Interval(torch.zeros(1, 2), torch.full((1, 2), 0.2))
    site = Interval(torch.tensor([[1.0, 2.0, -2.0, -1.0]]), torch.tensor([[2.0, 3.0, -1.0, 1.0]]))
    found = IntervalBounds({"2": site}, first, site, {})
    # E(Δ₀) = 0.2 and E(Δ) = 1.25: a ratio of 0.16, where 0.5 would cost nothing
    assert float(tightness(found)) == pytest.approx((0.5 - 0.16) / 0.5)
    # centers 1.5, 2.5 are active, −1.5 is inactive, 0 is neither; their mean is 0.625
    mean = 1.5 / (1.5 + 2.5)
    active, inactive = 0.875**2 + 1.875**2, 2.125**2
    variance = min(active, inactive) / max(active, inactive)
    assert variance > 0.5  # costs nothing
    assert float(balance(graph, found)) == pytest.approx((0.5 - mean) / 0.5)
    wide = Interval(torch.full((1, 4), -1.0), torch.full((1, 4), 1.0))
    assert float(balance(graph, IntervalBounds({"2": wide}, first, wide, {}))) == 0  # nothing to balance


def test_descending_on_the_regularizers_makes_bounds_narrower() -> None:
    torch.manual_seed(0)
    model, images = initialize(zoo.build("digits-cnn")), torch.rand(8, 1, 8, 8)
    before = widths(model, images)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    graph = graph_of(model)
    for _ in range(15):
        found = interval_bounds(graph, *bounds(images, 0.01))
        optimizer.zero_grad()
        (tightness(found) + balance(graph, found)).backward()
        optimizer.step()
    assert widths(model, images)[-1] < 0.7 * before[-1]


# --- the loop -----------------------------------------------------------------------------------------------------


def test_long_gradients_are_shortened(batch: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, images, labels = batch
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    take_step(model, optimizer, CertifiedLoss(EPS), images, labels, torch.Generator(), clip=0.01)
    moved = nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-3)


def digits() -> TrainingData:
    return TrainingData(load("digits", "train"), load("digits", "validation"))


@pytest.fixture
def trained(tmp_path: Path, description: ModelDescription) -> Callable[..., tuple[nn.Module, History]]:
    """trained(method, **settings) on the digits."""

    def run(method: str, **settings: Any) -> tuple[nn.Module, History]:
        torch.manual_seed(0)
        model = zoo.build("digits-cnn")
        config = with_preset("laptop", EPS, method, **{"batch": 64, **settings})
        (initialize_for_intervals if config.certified else initialize)(model)
        destination = Destination(Run(tmp_path / method), description)
        return model, train_network(model, digits(), config, destination)

    return run


@pytest.mark.slow
def test_ibp_certifies_far_more_than_adversarial_training(
    trained: Callable[..., tuple[nn.Module, History]], tmp_path: Path
) -> None:
    test = load("digits", "test")
    fast, _ = trained("fat", epochs=4, lr=0.05)
    assert certified_by_intervals(fast, test, EPS).double().mean() < 0.1
    model, history = trained("ibp", epochs=10, lr=0.005)
    certified = certified_by_intervals(model, test, EPS)
    assert certified.double().mean() > 0.5
    assert (certified <= correct(model, test)).all()
    assert history.keep_from == 5
    records = read_lines(tmp_path / "ibp" / "history.jsonl")
    assert records[-1]["certified"] == history.epochs[-1].certified
    assert "certified" not in read_lines(tmp_path / "fat" / "history.jsonl")[-1]


@pytest.mark.parametrize("method", ["sabr", "taps", "staps"])
def test_training_with_small_boxes_makes_bounds_tighter(batch: tuple[nn.Module, Tensor, Tensor], method: str) -> None:
    model, images, labels = batch
    initialize_for_intervals(model)
    loss = loss_at(make_loss(with_preset("laptop", EPS, method, small_box=0.4)), math.inf)
    before = value_of(CertifiedLoss(EPS), batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        _, figures = take_step(model, optimizer, loss, images, labels, generator)
    assert value_of(CertifiedLoss(EPS), batch) < 0.9 * before
    assert figures.keys() == {"certified_accuracy" if method == "taps" else "small_box_accuracy"}


def test_a_network_that_cannot_be_bounded_is_refused_before_anything_is_written(
    tmp_path: Path, description: ModelDescription
) -> None:
    config = TrainingConfig(EPS, method="crown-ibp", epochs=4, optimizer="adam")
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 10))
    with pytest.raises(LingraftError, match="max pooling"):
        train_network(model, digits(), config, Destination(Run(tmp_path / "run"), description))
    assert not (tmp_path / "run").exists()


def test_clean_pass_is_the_forward_pass(batch: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, images, _ = batch
    logits, statistics = clean_pass(graph_of(model), images)
    torch.testing.assert_close(logits, model(images))
    assert not statistics
