"""What `verify` gives: a list that can be looked at, and taken elsewhere."""

import csv
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.data import load
from lingraft.files import read_lines
from lingraft.report.study import Study
from lingraft.runs import Run
from lingraft.solver.verifier import Result
from lingraft.work.results import Results

EPS = 0.05


@pytest.fixture(scope="module")
def results(digits_net: nn.Module) -> Results:
    data = load("digits", "test").take(12)
    return lingraft.verify(digits_net, data.pixels(), data.labels, eps=EPS, timeout=60, workers=0)


def many(count: int) -> Results:
    found = [Result("verified", "crown", seconds=0.5, index=i, label=i % 10) for i in range(count)]
    return Results(found, {"timeout": 1.0})


def test_it_is_a_list_of_results_with_their_figures(results: Results):
    assert isinstance(results, list)
    assert [result.index for result in results] == list(range(12))
    assert results.summary.images == len(results) == 12
    assert results.summary.verified == sum(result.verdict == "verified" for result in results) > 0


def test_it_prints_as_a_table(results: Results):
    lines = str(results).splitlines()
    assert repr(results) == str(results)
    assert lines[0].startswith("12 images: ")
    assert f"{results.summary.verified} verified" in lines[0]
    assert lines[1].split() == ["image", "label", "verdict", "decided", "by", "seconds", "domains"]
    assert len(lines) == 14
    for result, line in zip(results, lines[2:], strict=True):
        assert line.split()[:4] == [str(result.index), str(result.label), result.verdict, result.stage]
    assert "tensor" not in str(results)


def test_a_long_one_is_cut_in_the_middle():
    lines = str(many(100)).splitlines()
    assert len(lines) == 2 + 20 + 1
    assert [line.split()[0] for line in lines[2:]] == [*map(str, range(10)), "…", *map(str, range(90, 100))]
    assert str(many(0)) == "no images"


def test_a_notebook_shows_html():
    strange = Results([Result("unknown", "branch", reason="<b>time</b>", label=3)], {"timeout": 1.0})
    page = strange._repr_html_()
    assert page.count("<tr>") == 2
    assert "&lt;b&gt;time&lt;/b&gt;" in page
    assert "<th>verdict</th>" in page


def test_a_table_for_other_programs(results: Results, tmp_path: Path):
    with open(results.to_csv(tmp_path / "results.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows] == [result.verdict for result in results]
    bounded = [(row, result) for row, result in zip(rows, results, strict=True) if result.crown]
    assert bounded
    for row, result in bounded:
        assert float(row["lowest"]) == min(result.alpha or result.crown)
        assert int(row["unstable"]) == sum(result.unstable.values())


def test_a_data_frame_of_pandas(results: Results):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = results.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert (frame.verdict == "verified").sum() == results.summary.verified
    assert list(frame.columns) == list(results.records()[0])
    assert list(many(0).to_pandas().columns) == list(frame.columns)


def test_without_pandas_it_says_what_to_do(results: Results, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LingraftError, match=r"pip install pandas.*to_csv"):
        results.to_pandas()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_what_became_of_a_proof_is_kept_with_the_verdict(digits_net: nn.Module, tmp_path: Path, workers: int):
    """Written, then checked in another call, then known to a call that asks for neither."""
    data = load("digits", "test").take(6)
    run = lingraft.save(digits_net, tmp_path / "run", (1, 8, 8), eps=EPS)

    def ask(**options: object) -> Results:
        how = {"eps": EPS, "timeout": 60, "workers": 0, "run": run, **options}
        return lingraft.verify(digits_net, data.pixels(), data.labels, **how)

    def states(found: Results) -> set[str | None]:
        return {result.proof_state for result in found if result.verdict == "verified"}

    def kept() -> tuple[set[str | None], int, int]:
        (shown,) = Study(Run(run.path), "run").verifications
        (figures,) = run.summary().verification.values()
        proven = {result.proof_state for result in shown.results if result.verdict == "verified"}
        return proven, figures.proofs, figures.proofs_checked

    first = ask()
    verified = first.summary.verified
    assert verified > 2
    assert (states(first), kept()) == ({None}, ({None}, 0, 0))
    written = ask(certificates=run.path / "certificates")
    assert (states(written), kept()) == ({"written"}, ({"written"}, verified, 0))
    checked = ask(check=True, workers=workers)
    assert (states(checked), kept()) == ({"checked"}, ({"checked"}, verified, verified))
    assert f"{verified} of {verified} proofs checked by the independent checker" in str(checked).splitlines()[0]
    lines = len(read_lines(run.verdicts_path))
    again = ask()
    assert (states(again), kept()) == ({"checked"}, ({"checked"}, verified, verified))
    assert len(read_lines(run.verdicts_path)) == lines, "nothing new"
    assert all(result.proof_state is None for result in again if result.verdict != "verified")


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([(None, None), (False, None)], ""),
        ([(True, None), (None, None)], "; 1 of 2 proofs written, not checked"),
        ([(True, True), (True, None)], "; 1 of 2 proofs checked by the independent checker"),
        ([(True, False), (True, None)], "; 0 of 2 proofs checked by the independent checker, which rejected 1"),
    ],
)
def test_a_rejected_proof_is_not_kept_silent(states: list[tuple[bool | None, bool | None]], said: str):
    found = [Result("verified", "crown", certificate=c, checked=checked) for c, checked in states]
    assert str(Results(found, {"timeout": 1.0})).splitlines()[0].partition(")")[2] == said


def test_short_representations(digits_net: nn.Module, results: Results, tmp_path: Path):
    data = load("digits", "train").take(30)
    assert repr(data) == "ImageSet(30 images of shape (1, 8, 8), float32, 10 classes)"
    scores = lingraft.score(digits_net, data, eps=EPS, score_images=10, bound_images=2)
    assert repr(scores).startswith("Scores(88 neurons of 2 sites, significance gap")
    run = lingraft.save(digits_net, tmp_path / "run", (1, 8, 8), eps=EPS)
    assert repr(run) == f"Run('{tmp_path / 'run'}', a model of your own, eps 0.05)"
    assert repr(Run(tmp_path / "none")) == f"Run('{tmp_path / 'none'}', without a model)"
    falsified = Result("falsified", "attack", seconds=0.25, index=4, label=7, witness=torch.rand(1, 8, 8))
    assert repr(falsified) == "Result(image 4, label 7: falsified by attack, 0.25 s)"
    unsure = Result("unknown", "branch", "time", 3.0, certificate=False)
    assert repr(unsure) == "Result(image 0: unknown (time) by branch, 3 s, proof missing)"
    assert max(len(repr(result)) for result in results) < 100
