"""Options that several commands have."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import lingraft
from lingraft.cli import app
from lingraft.cli.options import parse_images


def test_numbers_of_images() -> None:
    assert [parse_images(text) for text in ("7", "3:9", ":4", "5:", "all")] == [
        slice(7),
        slice(3, 9),
        slice(0, 4),
        slice(5, None),
        slice(None),
    ]


@pytest.mark.slow
def test_commands_use_the_radii_of_a_run(tmp_path: Path) -> None:
    """A radius for each pixel and no range of values, set from Python: each command shows the name of the tensor."""
    run, eps = tmp_path / "run", torch.linspace(0, 0.05, 64).view(1, 8, 8)
    lingraft.train("digits-cnn", "digits", eps=eps, clip=None, epochs=1, batch=64, validation_images=20, run=run)
    few = {"bound_images": 2, "score_images": 10}
    options = [word for name, count in few.items() for word in (f"--{name.replace('_', '-')}", str(count))]
    grafted = ["-o", str(tmp_path / "grafted"), "--epochs", "1", "--images", "5", *options]
    name = "#" + lingraft.Run(run).describe().eps.digest[:8]
    for words in (
        ["score", str(run), *options],
        ["evaluate", str(run), "--images", "5", "--steps", "2", "--restarts", "1"],
        ["verify", str(run), "--images", "3", "--timeout", "5", "--workers", "0"],
        ["graft", str(run), *grafted],
        ["show", str(run)],
    ):
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert name in done.output.replace("\n", ""), words
    summary, described = lingraft.Run(run).summary(), lingraft.Run(tmp_path / "grafted").describe()
    assert all("clip=none" in entry for entry in (*summary.verification, *summary.evaluation))
    assert described.clip is None
    assert described.eps.tensor.tolist() == eps.double().tolist()
