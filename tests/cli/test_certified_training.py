"""Certified training from the command line: train, evaluate, and a share of it in the fine-tuning of a graft."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.runs import Run

pytestmark = pytest.mark.slow

TRAIN = ["train", "--data", "digits", "--model", "digits-cnn", "--epochs", "2", "--validation-images", "20"]
GRAFT = ["--epochs", "1", "--bounds", "intervals", "--score-images", "50", "--bound-images", "10", "--images", "10"]


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of IBP."""
    folder = tmp_path_factory.mktemp("runs") / "ibp"
    told = json.loads(call(*TRAIN, "--method", "ibp", "-o", folder, "--json"))
    assert 0 <= told["best"]["certified"] <= 1
    return folder


def test_the_method_sets_optimizer_and_schedule(trained: Path) -> None:
    settings = Run(trained).summary().training.settings
    assert (settings["optimizer"], settings["gradient_clip"], settings["weight_decay"]) == ("adam", 10.0, 0.0)
    assert settings["kappa"] == [0.0, 0.0]
    assert "certified by intervals" in call(*TRAIN, "--method", "ibp", "-o", trained)


def test_evaluate_says_what_intervals_certify_of_such_runs(trained: Path, tmp_path: Path) -> None:
    quick = ["--images", "20", "--steps", "2", "--restarts", "1"]
    told = json.loads(call("evaluate", trained, *quick, "--json"))
    assert told["images_certified"] == 353
    assert told["certified_by_intervals"] <= told["sa"]
    assert "certified by intervals" in call("evaluate", trained, *quick)
    assert "certified_by_intervals" not in json.loads(call("evaluate", trained, *quick, "--no-intervals", "--json"))


def test_a_share_of_certified_training_in_fine_tuning(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "grafted"
    call("graft", trained, *GRAFT, "--finetune-loss", "mtl-ibp:0.25", "-o", out, "--json")
    best = Run(out).summary().as_dict()["training"]["best"]
    assert {"certified", "certified_accuracy"} <= best.keys()
    with pytest.raises(LingraftError, match=r"other settings.*certified: 0.25 there"):
        call("graft", trained, *GRAFT, "--finetune-loss", "mtl-ibp:0.5", "-o", out)
    small = tmp_path / "small"
    call("graft", trained, *GRAFT, "--finetune-loss", "sabr:0.25", "--instability", "weighted-interval", "-o", small)
    summary = Run(small).summary().as_dict()
    assert {"certified", "small_box_accuracy"} <= summary["training"]["best"].keys()
    assert summary["grafting"]["settings"]["instability"] == "weighted-interval"


def test_lines_from_the_beginning(trained: Path, tmp_path: Path) -> None:
    """The neurons of a mask are lines while a new network is trained, ε grows first, and it goes on after a stop."""
    few = ["--score-images", "50", "--bound-images", "5", "--bounds", "intervals"]
    call("score", trained, *few)
    call("select", trained, "--ratio", "0.3", "-o", tmp_path / "mask.safetensors")
    words = [*TRAIN[:-4], "--epochs", "3", "--validation-images", "20", "--mask", tmp_path / "mask.safetensors"]
    out = tmp_path / "lines"
    told = json.loads(call(*words, "--method", "staps", "-o", out, "--json"))
    run = Run(out)
    assert told["best"]["epoch"] >= 2  # epochs before the full radius are not kept
    sites = run.describe().grafted
    assert sum(site.grafted for site in sites) == round(0.3 * sum(math.prod(site.shape) for site in sites))
    trained_lines = [p for name, p in lingraft.load(out).named_parameters() if name.endswith("slope")]
    assert any(len(set(slopes[slopes != 0].tolist())) > 2 for slopes in trained_lines)
    assert json.loads(call(*words, "--method", "staps", "-o", out, "--json"))["epochs_done_before"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "ibp", "--kappa", "1"], "Write it like 1,0.5"),
        (["--method", "ibp", "--warm-up", "1", "--ramp", "1"], "leave none of 2 epochs"),
        (["--method", "mtl-ibp", "--alpha", "2"], "alpha"),
        (["--optimizer", "magic"], "unknown optimizer"),
    ],
)
def test_bad_options_leave_nothing_behind(tmp_path: Path, options: list[str], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        call(*TRAIN, *options, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["mtl-ibp", "ibp:0.1", "mtl-ibp:some", "mtl-ibp:2", "sabr", "sabr:2"])
def test_a_bad_loss_for_fine_tuning_is_refused(trained: Path, tmp_path: Path, text: str) -> None:
    with pytest.raises(LingraftError, match=r"mtl-ibp:0\.01|between 0 and 1"):
        call("graft", trained, *GRAFT, "--finetune-loss", text, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
