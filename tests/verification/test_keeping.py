"""Verdicts that a run keeps: what they are about decides whether they are used again."""

from pathlib import Path

import torch
from torch import nn

import lingraft
from lingraft.files import append_line, read_lines
from lingraft.verification.request import Limits, Request
from lingraft.verification.verdicts import Verdicts


def _positive_above(threshold: float) -> nn.Sequential:
    """Logits (relu(x + 1) − 1 − threshold, 0): class 0 where x > threshold, for x ≥ −1."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).eval()
    for parameter, values in zip(
        model.parameters(), ([[1.0]], [1.0], [[1.0], [0.0]], [-1.0 - threshold, 0.0]), strict=True
    ):
        parameter.data.copy_(torch.tensor(values))
    return model


def test_another_pixel_range_is_another_question(tmp_path: Path) -> None:
    """Cut to [0, 1] the ball around 0 is verified; not cut, it holds a counterexample."""
    model, image = _positive_above(-0.05), torch.zeros(1, 1, 1, 1)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))

    def ask(clip: tuple[float, float] | None) -> str:
        return lingraft.verify(model, image, [0], eps=0.1, clip=clip, workers=0, run=run)[0].verdict

    assert [ask((0.0, 1.0)), ask(None), ask((0, 1)), ask((-0.01, 1.0))] == [
        "verified", "falsified", "verified", "verified",
    ]  # fmt: skip
    assert len(run.verdicts_path.read_text().splitlines()) == 3, "(0, 1) was asked before"
    assert len(run.summary()["verification"]) == 3


def test_verdicts_that_do_not_name_a_pixel_range_are_about_the_usual_one(tmp_path: Path) -> None:
    model, image = _positive_above(-0.05), torch.zeros(1, 1, 1, 1)
    run = lingraft.save(model, tmp_path / "run", (1, 1, 1))
    lingraft.verify(model, image, [0], eps=0.1, workers=0, run=run)
    (record,) = read_lines(run.verdicts_path)
    del record["clip"]
    run.verdicts_path.unlink()
    append_line(run.verdicts_path, record)
    for clip, found in (((0.0, 1.0), {0}), (None, set())):
        asked = Request(model, image, [0], eps=0.1, clip=clip)
        assert set(Verdicts(run, record["data"], asked, Limits()).known()) == found
