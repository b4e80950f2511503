"""`lingraft score`, `select` and `graft`: from one run folder to another."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError
from lingraft.cli import app
from lingraft.grafting.mask_file import load_mask
from lingraft.model.surgery import masks
from lingraft.runs import Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parent(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that says how it was trained."""
    run = Run(shutil.copytree(trained_run, tmp_path_factory.mktemp("runs") / "digits"))
    run.add_to_summary("training", {"settings": {"method": "fat", "batch": 256, "grad_align": 0.0}})
    return run.path


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def fails(*arguments: object) -> str:
    with pytest.raises(LingraftError) as error:
        CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return str(error.value)


def test_step_by_step(parent: Path, tmp_path: Path):
    scores, mask, out = tmp_path / "scores.npz", tmp_path / "mask.safetensors", tmp_path / "out"
    told = json.loads(call("score", parent, "--score-images", 100, "--bound-images", 20, "-o", scores, "--json"))
    assert (told["facts"]["images"], told["facts"]["bound_images"], told["facts"]["bounds"]) == (100, 20, "crown")
    assert [row["neurons"] for row in told["sites"]] == [1024, 512, 64]
    with np.load(scores, allow_pickle=False) as archive:
        assert archive["instability/raw/2"].max() <= 20

    planned = json.loads(
        call("select", parent, "--scores", scores, "--ratio", 0.25, "--gamma", "inf,0", "-o", mask, "--json")
    )
    assert (planned["neurons"], planned["grafted"]) == (1600, 400)
    assert sum(int(chosen.sum()) for chosen in load_mask(mask).values()) == 400

    result = json.loads(
        call("graft", parent, "--mask", mask, "--epochs", 0, "-o", out, "--images", 20, "--bound-images", 10, "--json")
    )
    assert result["plan"] == {key: planned[key] for key in ("neurons", "grafted", "sites")}
    assert (result["mask"], result["settings"]["ratio"]) == (str(mask), 0.25)
    for when in ("before", "after"):
        assert 0 <= result[when]["unstable_ratio"] <= 1
        assert result[when]["images"] == 20
    assert result["after"]["unstable_ratio"] < result["before"]["unstable_ratio"]
    model = lingraft.load(out)
    assert all(torch.equal(chosen, load_mask(mask)[name]) for name, chosen in masks(model).items())


def test_all_at_once(parent: Path, tmp_path: Path):
    out = tmp_path / "out"
    counts = ("--score-images", 100, "--bound-images", 20, "--images", 20, "--bounds", "intervals")
    command = ("graft", parent, "--ratio", 0.5, "--epochs", 1, *counts, "-o", out)
    shown = call(*command)
    assert "800" in shown
    assert "unstable neurons" in shown
    run = Run(out)
    description = run.describe()
    assert description.parent == str(parent)
    assert description.grafted is not None
    assert sum(site.grafted for site in description.grafted) == 800
    settings = run.summary().training.settings
    assert (settings["batch"], settings["grad_align"]) == (256, 0.0)  # as the parent was trained
    assert (settings["lr"], settings["schedule"]) == (0.005, "cosine")  # five times the paper's rate
    assert (out / "scores.npz").exists()
    assert len((out / "history.jsonl").read_text().splitlines()) == 1

    before = (out / "model.safetensors").read_bytes()
    again = json.loads(call(*command, "--json"))  # done already: nothing is computed anew
    assert (out / "model.safetensors").read_bytes() == before
    assert again["after"] == run.summary().as_dict()["grafting"]["after"]
    assert "other settings" in fails(*command, "--slope", 0.3)
    call(*command, "--slope", 0.3, "--restart")
    assert run.summary().as_dict()["grafting"]["settings"]["slope"] == 0.3


def test_gradual_and_regularized(parent: Path, tmp_path: Path):
    result = json.loads(
        call(
            "graft", parent, "--method", "zero", "--gradual", "--rescore", "--regularize", "stability,l1,prune",
            "--epochs", 2, "--score-images", 50, "--bound-images", 20, "--bounds", "intervals", "--images", 10,
            "-o", tmp_path / "out", "--json",
        )
    )  # fmt: skip
    assert result["plan"]["grafted"] == 800
    history = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    assert all(record["l1"] > 0 and 0 < record["unstable"] < 1 for record in history)


@pytest.mark.parametrize("model", ["sigmoid-cnn", "tanh-cnn"])
def test_a_smooth_network_end_to_end(model: str, tmp_path: Path):
    plain, counts = tmp_path / "plain", ("--bound-images", 10, "--images", 20)
    call("train", "--data", "digits", "--model", model, "--epochs", 8, "--lr", 0.05, "-o", plain)
    for method in ("grafting", "gap"):
        out = tmp_path / method
        result = json.loads(call("graft", plain, "--method", method, "--epochs", 1, *counts, "-o", out, "--json"))
        assert result["plan"]["grafted"] == result["plan"]["neurons"] // 2
        assert 0 <= result["after"]["unstable_ratio"] <= 0.5  # grafted neurons are linear
        proven = json.loads(call("verify", out, "--images", 2, "--timeout", 1, "--workers", 0, "--json"))
        assert proven["images"] == 2
        if proven["unr"] is not None:
            assert proven["unr"] <= 0.5


def test_scores_of_a_grafted_run_leave_those_it_was_chosen_by(parent: Path, tmp_path: Path):
    out, counts = tmp_path / "out", ("--bounds", "intervals", "--bound-images", 10)
    call("graft", parent, "--epochs", 0, "--score-images", 50, "--images", 10, *counts, "-o", out)
    before = (out / "scores.npz").read_bytes()
    told = json.loads(call("score", out, "--score-images", 50, *counts, "--json"))
    assert told["scores"] == str(out / "scores-grafted.npz")
    assert (out / "scores.npz").read_bytes() == before
    planned = json.loads(call("select", out, "--ratio", 0.6, "--json"))  # by the scores of the grafted network
    assert planned["grafted"] == 960


def test_scores_of_test_images_are_to_report_and_choose_nothing(parent: Path, tmp_path: Path):
    few = ("--score-images", 50, "--bound-images", 5, "--split", "test")
    told = json.loads(call("score", parent, *few, "--json"))
    assert told["scores"] == str(parent / "scores-test.npz")
    assert told["facts"]["split"] == "test"
    assert "training images" in fails("select", parent, "--scores", parent / "scores-test.npz", "-o", tmp_path / "m")
    assert "unknown split" in fails("score", parent, "--split", "tset")


def test_harm_as_the_measure_of_instability(parent: Path, tmp_path: Path):
    out, counts = tmp_path / "out", ("--bounds", "intervals", "--bound-images", 5, "--instability", "harm-per-site")
    told = json.loads(call("score", parent, "--score-images", 50, *counts, "-o", tmp_path / "scores.npz", "--json"))
    assert told["facts"]["instability"] == "harm-per-site"
    assert [row["mean_instability"] * 5 for row in told["sites"]] == pytest.approx([1, 1, 1])
    result = json.loads(
        call("graft", parent, "--epochs", 0, "--score-images", 50, "--images", 10, *counts, "-o", out, "--json")
    )
    assert result["settings"]["instability"] == "harm-per-site"
    assert result["plan"]["grafted"] == 800


def test_a_graft_goes_on_from_another_folder(parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counts = ("--score-images", 50, "--bound-images", 5, "--bounds", "intervals", "--images", 10, "--epochs", 1)
    monkeypatch.chdir(parent.parent)
    call("graft", parent.name, *counts, "-o", tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    call("graft", parent, *counts, "-o", "out")
    assert len((tmp_path / "out" / "history.jsonl").read_text().splitlines()) == 1


def test_mistakes_are_explained(parent: Path, tmp_path: Path):
    out = ("-o", tmp_path / "out")
    assert "between 0 and 1" in fails("graft", parent, "--ratio", 1.5, *out)
    told = fails("graft", parent, "--method", "pruning", *out)
    assert "unknown method 'pruning'" in told
    assert "auto" in told
    assert "unknown regularizer 'l2'" in fails("graft", parent, "--regularize", "l2", *out)
    assert "not a list of numbers" in fails("graft", parent, "--gamma", "2;1", *out)
    assert "--epochs" in fails("graft", parent, "--epochs", -1, *out)
    assert "Choose another folder" in fails("graft", parent, "-o", parent)
    assert "not a run folder" in fails("graft", tmp_path, *out)
    assert "missing" in fails("graft", parent, "--mask", tmp_path / "mask.safetensors", *out)
    assert "no --ratio" in fails("graft", parent, "--mask", tmp_path / "mask.safetensors", "--ratio", 0.2, *out)
    assert "lingraft score" in fails("select", parent, "--scores", tmp_path / "none.npz")
    assert "unknown significance" in fails("score", parent, "--significance", "size")
    assert not (tmp_path / "out").exists()


def test_auto_finds_a_setting_and_keeps_its_candidates(parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingraft.work.search.RATIOS", (0.2, 0.6))  # fewer, for time
    source, out = tmp_path / "digits", tmp_path / "out"
    shutil.copytree(parent, source)
    counts = ("--score-images", 50, "--bound-images", 5, "--images", 10, "--bounds", "intervals", "--eps", 0.01)
    short = ("--epochs", 1, "--search-epochs", 1, "--search-images", 2, "--search-timeout", 0.5, "--search-workers", 0)
    command = ("graft", source, "--method", "auto", *counts, *short)
    result = json.loads(call(*command, "--min-sa", 0.5, "-o", out, "--json"))
    told = json.loads((source / "search" / "front.json").read_text())
    chosen = result["search"]["chosen"]
    assert chosen["sa"] >= 0.5
    assert chosen["va"] == max(c["va"] for c in told["candidates"] if c["sa"] >= 0.5)
    assert [c["ratio"] for c in told["candidates"] if c["chosen"]] == [chosen["ratio"]]
    assert result["settings"]["ratio"] == chosen["ratio"]
    assert result["settings"]["instability"] == chosen["instability"]
    assert result["plan"]["grafted"] == round(1600 * chosen["ratio"])
    rows = (source / "search" / "front.csv").read_text().splitlines()
    assert rows[0].startswith("instability,ratio,epochs,sa,va")
    assert len(rows) == len(told["candidates"]) + 1
    assert (source / "figures" / "front.png").stat().st_size > 1000
    assert (source / "figures" / "front.svg").exists()

    kept = {path: path.stat().st_mtime_ns for path in source.glob("search/*/*/model.safetensors")}
    assert len(kept) == len(told["candidates"])
    highest = max(c["sa"] for c in told["candidates"])
    with pytest.raises(LingraftError, match=r"no candidate has .* the best is"):
        call(*command, "--min-sa", 1.0 if highest < 1 else 0.99, "-o", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())  # nothing was done twice


def test_auto_is_told_what_to_do(parent: Path, tmp_path: Path):
    auto = ("graft", parent, "-o", tmp_path / "out", "--method", "auto")
    assert "needs --min-sa" in fails(*auto)
    assert "no --ratio" in fails(*auto, "--min-sa", 0.5, "--ratio", 0.5)
    assert "between 0 and 1" in fails(*auto, "--min-sa", 72)
    assert "time limit" in fails(*auto, "--min-sa", 0.7, "--search-timeout", 0)
    assert "belongs to --method auto" in fails("graft", parent, "--min-sa", 0.7)
