"""Grafting guided by the verifier: steps, what is kept of them, and going on after a stop."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import lingraft
from lingraft import LingraftError
from lingraft.files import read_lines
from lingraft.model.surgery import masks
from lingraft.work.guided import GuidedConfig, Step, best_step


def step(number: int, sa: float, va: float, grafted: float = 0.5, kept: bool = True) -> Step:
    return Step(number, "more", f"run-{number}", grafted, sa, va, 0.0, kept)


def test_the_best_step_has_the_accuracy_that_is_asked_for() -> None:
    steps = [step(0, 0.9, 0.1), step(1, 0.8, 0.5), step(2, 0.75, 0.6), step(3, 0.6, 0.9, kept=False)]
    assert best_step(steps, None).number == 2
    assert best_step(steps, 0.78).number == 1
    assert best_step(steps, 0.99).number == 0
    assert best_step([*steps, step(4, 0.75, 0.6, grafted=0.4)], None).number == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": -1}, "--guided"),
        ({"share": 0.0}, "share"),
        ({"min_sa": 74}, "between 0 and 1"),
        ({"epochs": 0}, "1 epoch"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        GuidedConfig(**{"steps": 1, **settings})


@pytest.mark.slow
def test_steps_graft_more_where_proofs_are_stuck_then_give_lines_back(tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "grafted"
    lingraft.train("digits-cnn", "digits", eps=0.1, epochs=1, batch=64, validation_images=10, run=base, threads=1)
    # in a millisecond no machine proves anything, so there are always images that are undecided
    options = {
        "ratio": 0.2, "epochs": 1, "score_images": 50, "bound_images": 3, "images": 5, "out": out, "threads": 1,
        "guided": 1, "guided_share": 0.1, "ungraft": True,
        "search_epochs": 1, "search_images": 4, "search_timeout": 0.001, "search_workers": 0,
    }  # fmt: skip
    found = lingraft.graft_and_tune(base, **options)
    steps = [Step(**record) for record in read_lines(out / "guided.jsonl")]
    assert [each.number for each in steps] == [0, 1, 2]
    assert steps[1].grafted == pytest.approx(0.3)
    assert steps[2].grafted <= best_step(steps[:2], None).grafted
    first, second = (masks(lingraft.load(out / "guided" / str(number))) for number in (0, 1))
    assert all(bool((second[name] >= mask).all()) for name, mask in first.items())  # no line was taken back
    # the run is the best step, with the history of all of them
    best = best_step(steps, None)
    assert found.run.path == out
    assert found.plan.grafted == round(best.grafted * 1600)
    assert found.figures["guided"] == [each.as_dict() for each in steps]
    ours, theirs = (lingraft.load(folder).state_dict() for folder in (out, best.run))
    assert all(torch.equal(ours[name], values) for name, values in theirs.items())
    assert [line["epoch"] for line in read_lines(out / "history.jsonl")] == [1, 2, 3]
    assert lingraft.Run(out).describe().parent == str(base)
    # killed in the last step: its mask is kept, and it ends in the same way
    lines = (out / "guided.jsonl").read_bytes().splitlines(keepends=True)
    (out / "guided.jsonl").write_bytes(b"".join(lines[:-1]))
    shutil.rmtree(out / "guided" / "2")
    weights = (out / "model.safetensors").read_bytes()
    lingraft.graft_and_tune(base, **options)
    assert json.loads(lines[-1])["sa"] == read_lines(out / "guided.jsonl")[-1]["sa"]
    assert (out / "model.safetensors").read_bytes() == weights
    with pytest.raises(LingraftError, match="other settings"):
        lingraft.graft_and_tune(base, **{**options, "guided_share": 0.2})
    with pytest.raises(LingraftError, match="Give it epochs"):
        lingraft.graft_and_tune(base, **{**options, "epochs": 0})
