"""From a trained network to a grafted and fine-tuned one, on digits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.attack.evaluation import correct
from lingraft.data import ImageSet
from lingraft.grafting import (
    METHODS,
    FineTuning,
    GraftingConfig,
    Scores,
    fine_tuning_defaults,
    graft_network,
    unstable_ratio,
)
from lingraft.grafting.regularizers import layer_weights
from lingraft.model.sites import grafted_activations
from lingraft.model.surgery import masks
from lingraft.runs import ModelDescription, Run
from lingraft.training import Destination, History, OnEpoch, TrainingData

pytestmark = pytest.mark.slow

EPS = 0.1
Tune = Callable[..., tuple[nn.Module, History | None]]


@pytest.fixture
def tune(digits: dict[str, ImageSet], digits_run: Path) -> Tune:
    """tune(folder, epochs=…, few=True, on_epoch=…, tuning={…}, **settings of GraftingConfig) on the digits."""

    def run_tuning(
        folder: Path,
        epochs: int = 2,
        few: bool = True,
        on_epoch: OnEpoch = lambda history: None,
        tuning: dict[str, Any] | None = None,
        **settings: Any,
    ) -> tuple[nn.Module, History | None]:
        train, validation = digits["train"], digits["validation"]
        if few:
            train, validation = train.take(192), validation.take(48)
        training = fine_tuning_defaults(EPS, epochs=epochs, batch=64, lr=0.01, validation_steps=3) if epochs else None
        return graft_network(
            lingraft.load(digits_run),
            TrainingData(train, validation),
            GraftingConfig(EPS, **{"images": 300, "bounds": "intervals", "bound_images": 300, **settings}),
            None if training is None else FineTuning(training, **{"line_lr": 0.02, **(tuning or {})}),
            Destination(
                Run(folder),
                ModelDescription(
                    architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", parent=str(digits_run)
                ),
            ),
            on_epoch=on_epoch,
        )

    return run_tuning


def same(a: nn.Module, b: nn.Module) -> bool:
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_grafting_beats_random_grafting_and_gap_pruning(tmp_path: Path, tune: Tune, digits, digits_run):
    """Half of the neurons grafted: less than half of the unstable ones are left, fewer than with either baseline."""
    before = lingraft.load(digits_run)
    ratios, accuracies = {}, {}
    for method in ("grafting", "random", "gap"):
        model, _ = tune(tmp_path / method, few=False, method=method, images=1000, bound_images=1000)
        ratios[method] = unstable_ratio(model, digits["test"], EPS, "intervals")
        accuracies[method] = correct(model, digits["test"]).double().mean().item()
    assert ratios["grafting"] < 0.5 * unstable_ratio(before, digits["test"], EPS, "intervals")
    assert ratios["grafting"] < ratios["random"]
    assert ratios["grafting"] < ratios["gap"]
    assert accuracies["grafting"] > correct(before, digits["test"]).double().mean().item() - 0.05


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_in_a_run_that_loads(tmp_path: Path, tune: Tune, method: str):
    model, history = tune(tmp_path, epochs=1, method=method, ratio=0.3)
    assert history is not None
    assert not model.training
    assert same(lingraft.load(tmp_path), model)
    sites = Run(tmp_path).describe().grafted
    assert sites is not None
    assert sum(site.grafted for site in sites) == (0 if method == "baseline" else 480)
    zero = method in ("zero", "sap", "gap", "hydra")
    assert sum(site.pruned for site in sites) == (480 if zero else 0)
    assert (tmp_path / "scores.npz").exists() == (method != "baseline")
    if method in ("grafting", "random"):  # lines were learned
        assert any((site.line()[0][site.mask] != 0.4).any() for site in grafted_activations(model).values())
    if method == "grafting":
        assert Scores.load(tmp_path / "scores.npz").facts["bounds"] == "intervals"


def test_without_epochs_it_is_grafted_only(tmp_path: Path, tune: Tune, digits_run: Path):
    model, history = tune(tmp_path, epochs=0, slope=0.3, intercept=0.05)
    assert history is None
    assert same(lingraft.load(tmp_path), model)
    expected = lingraft.graft(lingraft.load(digits_run), masks(model), 0.3, 0.05)
    assert same(model, expected)


def test_another_model_in_the_folder_is_not_written_over(tmp_path: Path, tune: Tune, digits_run: Path):
    run = Run(tmp_path)
    run.save_weights(lingraft.load(digits_run))
    before = run.weights_path.read_bytes()
    for epochs in (0, 1):
        with pytest.raises(LingraftError, match="holds a model already"):
            tune(tmp_path, epochs=epochs)
    assert run.weights_path.read_bytes() == before
    assert not run.scores_path.exists()


def test_frozen_weights_stay_and_lines_move(tmp_path: Path, tune: Tune, digits_run: Path):
    model, _ = tune(tmp_path, tuning={"freeze_weights": True})
    before = lingraft.load(digits_run).state_dict()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    assert any((site.line()[0][site.mask] != 0.4).any() for site in grafted_activations(model).values())


@pytest.mark.parametrize("method", ["zero", "baseline"])
def test_with_nothing_to_train_nothing_is_begun(tmp_path: Path, tune: Tune, method: str):
    with pytest.raises(LingraftError, match="no lines to train"):
        tune(tmp_path / "run", method=method, tuning={"freeze_weights": True})
    assert not Run(tmp_path / "run").checkpoint_path.exists()


def test_a_given_mask_takes_the_place_of_scores(tmp_path: Path, digits, digits_run: Path):
    model = lingraft.load(digits_run)
    mask: dict[str, Tensor] = {"7": torch.arange(64) < 10}

    def graft(mask: dict[str, Tensor]) -> nn.Module:
        return graft_network(
            model,
            TrainingData(digits["train"].take(64), digits["validation"].take(16)),
            GraftingConfig(EPS),
            FineTuning(fine_tuning_defaults(EPS, epochs=1)),
            Destination(
                Run(tmp_path / "out"),
                ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10),
            ),
            mask=mask,
            on_epoch=(),
        )[0]

    assert {name: int(m.sum()) for name, m in masks(graft(mask)).items()} == {"2": 0, "4": 0, "7": 10}
    assert not (tmp_path / "out" / "scores.npz").exists()
    with pytest.raises(LingraftError, match="other settings"):  # another mask in the same folder
        graft({"7": torch.arange(64) < 11})
    with pytest.raises(LingraftError, match=r"'7'.*\(63,\)"):
        graft({"7": torch.arange(63) < 11})


class Stop(Exception):
    """In place of a kill."""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradual": True},
        {"gradual": True, "rescore": True, "method": "zero"},
        {"tuning": {"regularize": ("stability", "l1", "prune"), "certified": 0.1}},
    ],
)
def test_stopped_and_gone_on_it_ends_the_same(tmp_path: Path, tune: Tune, settings: dict[str, Any]):
    whole, history = tune(tmp_path / "whole", epochs=4, **settings)

    def stop(history: History) -> None:
        if history.last.epoch == 1:
            raise Stop

    with pytest.raises(Stop):
        tune(tmp_path / "stopped", epochs=4, on_epoch=stop, **settings)
    lingraft.load(tmp_path / "stopped")  # also what is there in between can be loaded
    gone_on, resumed = tune(tmp_path / "stopped", epochs=4, **settings)
    assert resumed is not None
    assert resumed.resumed == 1
    assert same(gone_on, whole)
    assert history is not None
    figures = [{**epoch.as_dict(), "seconds": 0} for epoch in history.epochs]
    assert [{**epoch.as_dict(), "seconds": 0} for epoch in resumed.epochs] == figures


def test_gradual_grafting_grafts_more_in_each_early_epoch(tmp_path: Path, tune: Tune):
    counts = []

    def count(history: History) -> None:
        from lingraft.runs import load_tensors

        tensors, _ = load_tensors(tmp_path / "checkpoint.safetensors")
        counts.append(
            sum(len(t) for name, t in tensors.items() if name.startswith("model.") and name.endswith("slope"))
        )

    model, history = tune(tmp_path, epochs=6, gradual=True, on_epoch=count)
    assert counts == [round(1600 * 0.5 * (1 - (1 - step / 3) ** 3)) for step in (1, 2)] + [800] * 4
    assert sum(site.grafted for site in grafted_activations(model).values()) == 800
    assert history is not None
    assert history.best.epoch >= 3  # earlier ones were not grafted in full
    once, _ = tune(tmp_path / "once", epochs=0)
    assert all(torch.equal(mask, masks(once)[name]) for name, mask in masks(model).items())


def test_pruned_weights_are_zero_in_the_end(tmp_path: Path, tune: Tune, digits_run: Path):
    model, _ = tune(tmp_path, tuning={"regularize": ("prune",), "prune_below": 0.02})
    before = layer_weights(lingraft.load(digits_run))
    for name, weight in layer_weights(model).items():
        small = before[name].abs() < 0.02
        assert not weight[small].any()
        assert small.any()


def test_a_grafted_run_can_be_grafted_further(tmp_path: Path, tune: Tune, digits):
    first, _ = tune(tmp_path / "first", epochs=1, ratio=0.2)
    more, _ = graft_network(
        lingraft.load(tmp_path / "first"),
        TrainingData(digits["train"].take(64), digits["validation"].take(16)),
        GraftingConfig(EPS, ratio=0.4, images=100, bound_images=10),
        None,
        Destination(Run(tmp_path / "second"), Run(tmp_path / "first").describe()),
    )
    assert sum(site.grafted for site in grafted_activations(more).values()) == 640
    for name, site in grafted_activations(first).items():
        later = more.get_submodule(name)
        assert (later.mask | ~site.mask).all()
        assert torch.equal(later.line()[0][site.mask], site.line()[0][site.mask])
    assert same(lingraft.load(tmp_path / "second"), more)


def test_a_module_of_ones_own_is_grafted_and_loaded(tmp_path: Path, own, own_images: ImageSet):
    description = ModelDescription(architecture=None, input_shape=(1, 4, 4), classes=3)
    config, tuning = GraftingConfig(EPS, bound_images=5), FineTuning(fine_tuning_defaults(EPS, epochs=1, batch=8))
    for name in ("functional", "resnet", "leaky"):
        run = Run(tmp_path / name)
        model, _ = graft_network(
            own(name),
            TrainingData(own_images, own_images),
            config,
            tuning,
            Destination(run, description),
            on_epoch=(),
        )
        loaded = lingraft.load(run, model=type(own(name))())
        assert same(loaded, model)
        assert torch.equal(loaded(own_images.images), model(own_images.images))
        with pytest.raises(LingraftError, match="Pass it"):
            lingraft.load(run)


def test_bad_settings_are_refused(tmp_path: Path, tune: Tune):
    for settings, message in (
        ({"ratio": 1.5}, "between 0 and 1"),
        ({"method": "graftin"}, "unknown method 'graftin'.*'grafting'"),
        ({"significance": "gapp"}, "unknown significance"),
        ({"bounds": "interval"}, "unknown bounds"),
        ({"images": 0}, "at least 1 image"),
        ({"gammas": ()}, "γ"),
        ({"rescore": True}, "--gradual"),
        ({"gradual": True, "epochs": 0}, "give it epochs"),
        ({"slope": float("inf")}, "finite"),
        ({"tuning": {"line_lr": 0.0}}, "line_lr"),
    ):
        with pytest.raises(LingraftError, match=message):
            tune(tmp_path, **settings)
    assert not list(tmp_path.iterdir())
