"""Two small real runs made by commands, a network and one grafted from it, and a browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.data import load
from lingraft.model import zoo
from lingraft.report.write import write_report
from lingraft.runs import ModelDescription, Run
from lingraft.runs.verdicts import Verdicts
from lingraft.solver.request import Limits, Request

EPS = 0.05


def call(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """`base`, and `grafted` from it, each evaluated and verified on 24 images; scores of both.

    The proofs of the second are checked.
    """
    folder = tmp_path_factory.mktemp("report")
    base, grafted = Run(folder / "base"), Run(folder / "grafted")
    call("train", "--data", "digits", "--model", "digits-cnn", "--eps", EPS, "--epochs", 2, "-o", base.path)
    call("score", base.path, "--bound-images", 6, "--score-images", 64)
    call("graft", base.path, "--ratio", 0.7, "--epochs", 1, "--score-images", 64, "--bound-images", 6, "--images", 50,
         "-o", grafted.path)  # fmt: skip
    call("score", grafted.path, "--bound-images", 6, "--score-images", 64, "-o", grafted.grafted_scores_path)
    for run in (base, grafted):
        call("evaluate", run.path, "--steps", 5, "--restarts", 1, "--images", 60)
        proofs = ["--check"] if run is grafted else []
        call("verify", run.path, "--images", 24, "--timeout", 0.4, "--workers", 0, *proofs)
    return [base, grafted]


@pytest.fixture(scope="session")
def page_path(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `runs`."""
    return write_report(runs, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def bare(tmp_path: Path) -> Run:
    """A run that was never measured: random weights."""
    return make_bare(tmp_path / "bare")


def make_bare(path: Path, model: str = "digits-cnn", data: str = "digits") -> Run:
    torch.manual_seed(0)
    network = zoo.build(model)
    run = Run(path)
    shape = zoo.MODELS[model].input_shape
    run.write_description(
        ModelDescription(architecture=model, input_shape=shape, classes=10, data=data, eps=EPS, seed=3)
    )
    run.save_weights(network)
    return run


@pytest.fixture
def keeper() -> Any:
    """(run, images) → what adds verdicts of our own to a run."""

    def make(run: Run, images: int, data: str = "digits", eps: float = EPS, timeout: float = 1.0) -> Verdicts:
        from lingraft.runs import load as load_model

        test = load(data, "test").take(images)
        return Verdicts(run, data, Request(load_model(run), test.pixels(), test.labels, eps=eps), Limits(timeout))

    return make


@pytest.fixture
def bare_run() -> Any:
    """(path, model, data) → a run that was never measured."""
    return make_bare


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no chromium (Debian: apt-get install chromium)")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()
