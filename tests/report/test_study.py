"""What is read from run folders, also from damaged and changed ones."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.errors import LingraftError
from lingraft.files import append_line, read_lines
from lingraft.model import zoo
from lingraft.report.study import Study, studies
from lingraft.report.write import write_report
from lingraft.runs import Run
from lingraft.solver.verifier import Result


def result(index: int, verdict: str, label: int, **more: Any) -> Result:
    return Result(verdict, "branch", index=index, label=label, eps=0.05, neurons=1600, seconds=0.5, **more)


def test_an_image_done_twice_counts_once(bare: Run, keeper: Any) -> None:
    verdicts = keeper(bare, 3)
    labels = verdicts.request.labels
    verdicts.keep(0, result(0, "unknown", labels[0], reason="time"))
    verdicts.keep(1, result(1, "verified", labels[1]))
    verdicts.keep(0, result(0, "verified", labels[0]))
    verdicts.keep(1, result(1, "unknown", labels[1], reason="time"))  # a shorter limit, later
    (found,) = Study(bare, "bare").verifications
    assert [r.index for r in found.results] == [0, 1]
    assert [r.verdict for r in found.results] == ["verified", "verified"]


def test_each_eps_is_apart(bare: Run, keeper: Any) -> None:
    for eps in (0.1, 0.05):
        keeper(bare, 1, eps=eps).keep(0, Result("verified", "crown", index=0, label=0, eps=eps))
    assert [found.eps for found in Study(bare, "bare").verifications] == [0.05, 0.1]


def test_verdicts_on_other_weights_and_damaged_ones_are_left_out(bare: Run, keeper: Any) -> None:
    keeper(bare, 1).keep(0, result(0, "verified", 0))
    append_line(bare.verdicts_path, {"weights": "others", "index": 1})
    with open(bare.verdicts_path, "a") as file:
        file.write('{"weights": "cut sho')
    assert len(Study(bare, "bare").verifications[0].results) == 1
    torch.manual_seed(1)
    bare.save_weights(zoo.build("digits-cnn"))
    assert Study(bare, "bare").verifications == []


def test_verdicts_on_the_same_weights_in_changed_code_are_left_out(bare: Run, keeper: Any) -> None:
    """Verdicts that name no network, of version 0.1.0, stay until the image is done again."""
    verdicts = keeper(bare, 4)
    labels = verdicts.request.labels
    for index, network in ((0, "old"), (1, "old"), (2, "none"), (3, "none"), (1, "new"), (3, "new")):
        verdicts.network = network
        verdicts.keep(index, result(index, "unknown" if network == "new" else "verified", labels[index], reason="time"))
    records = read_lines(bare.verdicts_path)
    bare.verdicts_path.unlink()
    for record in records:
        append_line(bare.verdicts_path, {k: v for k, v in record.items() if (k, v) != ("network", "none")})
    (found,) = Study(bare, "bare").verifications
    assert {r.index: r.verdict for r in found.results} == {1: "unknown", 2: "verified", 3: "unknown"}


def test_names_tell_runs_apart(bare_run: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "net", tmp_path / "b" / "net", tmp_path / "c" / "other"]
    for path in paths:
        bare_run(path)
    assert [study.name for study in studies(paths)] == ["a/net", "b/net", "c/other"]
    assert [study.name for study in studies([paths[0], paths[0]])] == ["net"], "given twice, shown once"


def test_a_moved_run_finds_its_parent(runs: list[Run], tmp_path: Path) -> None:
    moved = [Run(shutil.copytree(run.path, tmp_path / run.path.name)) for run in runs]
    base, grafted = studies(moved)
    assert grafted.parent is base
    assert base.parent is None
    assert studies(moved[1:])[0].parent is None


def test_masks_and_lines_are_those_of_the_model(runs: list[Run]) -> None:
    from lingraft import load
    from lingraft.model.sites import grafted_activations

    study = studies(runs)[1]
    for name, site in grafted_activations(load(runs[1])).items():
        assert torch.equal(study.masks[name], site.mask)
        assert torch.equal(study.lines[name][0], site.slope[0, site.mask].detach())


def test_evaluations_of_another_eps_are_not_used(runs: list[Run]) -> None:
    study = studies(runs)[0]
    assert study.evaluation("digits", 0.05).steps == 5
    assert study.evaluation("digits", 0.3) is None
    assert study.evaluation("mnist", 0.05) is None


def test_without_evaluation_what_grafting_measured_is_used(runs: list[Run], tmp_path: Path) -> None:
    run = Run(shutil.copytree(runs[1].path, tmp_path / "grafted"))
    summary = run.summary().as_dict()
    del summary["evaluation"]
    run.summary_path.unlink()
    for name, section in summary.items():
        run.add_to_summary(name, section)
    assert Study(run, "grafted").evaluation("digits", 0.05).sa == summary["grafting"]["after"]["sa"]


def test_a_mask_that_is_gone_is_named(runs: list[Run], tmp_path: Path) -> None:
    run = Run(shutil.copytree(runs[1].path, tmp_path / "grafted"))
    shutil.copy(runs[0].weights_path, run.weights_path)
    with pytest.raises(LingraftError, match=r"model\.safetensors does not hold the masks"):
        _ = Study(run, "grafted").masks


def test_figures_stay_where_weights_were_not_kept(runs: list[Run], tmp_path: Path) -> None:
    whole = studies(runs)
    copies = [Run(shutil.copytree(run.path, tmp_path / run.path.name)) for run in runs]
    for run in copies:
        run.weights_path.unlink()
    light = studies(copies)
    assert any(study.verifications for study in whole)
    for with_weights, without in zip(whole, light, strict=True):
        assert [row.as_dict() for row in without.rows] == [row.as_dict() for row in with_weights.rows]
    assert write_report([run.path for run in copies], tmp_path / "report.html").exists()
