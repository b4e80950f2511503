"""What is written, by the name of the file, and what is refused."""

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.errors import LingraftError
from lingraft.report.figures import FIGURES, Drawn, figure, sections
from lingraft.report.panels import Panel
from lingraft.report.study import Study, studies
from lingraft.report.write import write_report
from lingraft.runs import Run


@pytest.fixture(scope="module")
def html(page_path: Path) -> str:
    return page_path.read_text()


def test_the_page_has_every_part(html: str) -> None:
    for key in (
        "accuracies",
        "summary",
        "verdicts",
        "time",
        "bounds",
        "sites",
        "histograms",
        "regions",
        "criteria",
        "masks",
        "lines",
    ):
        assert f'<section id="{key}"' in html, key
    assert 'id="absent"' not in html
    assert "To add it" not in html, "nothing is missing from these runs"


def test_the_page_names_commands_versions_and_seeds(html: str, runs: list[Run]) -> None:
    for command in ("train --data digits", "score", "graft", "evaluate", "verify"):
        assert f"lingraft {command}" in html
    for version in runs[0].describe().versions.values():
        assert version in html
    assert "verification 0" in html


def test_the_page_needs_nothing_else(html: str) -> None:
    outside = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\'\s)>]+)', html)
    assert all(found.startswith(("data:", "#")) for found in outside), set(outside)
    assert not re.search(r"@import|<link(?! rel=\"icon\" href=\"data:,\")|fetch\(|XMLHttpRequest", html)


def test_ids_are_unique(html: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:href="|url\()#([^")]+)', html))
    assert wanted <= set(ids), wanted - set(ids)


def test_every_picture_says_what_it_shows(html: str) -> None:
    pictures = re.findall(r"<svg[^>]*>", html)
    assert len(pictures) > 15
    assert all(re.search(r'role="img" aria-label="[^"]{20,}"', picture) for picture in pictures)


def test_names_are_escaped_in_the_page(bare_run, tmp_path: Path) -> None:
    run = bare_run(tmp_path / "<script>alert(1)<")
    html = write_report([run], tmp_path / "t.html").read_text()
    assert "<script>alert" not in html


def test_a_run_without_verdicts_says_what_would_add_them(bare: Run, tmp_path: Path) -> None:
    html = write_report([bare], tmp_path / "r.html").read_text()
    assert f"lingraft verify {bare.path} --images 100" in html
    assert f"lingraft score {bare.path}" in html
    assert f"lingraft evaluate {bare.path}" in html
    assert f"lingraft graft {bare.path} --ratio 0.5" in html
    assert "No commands are recorded" in html
    assert 'id="verdicts"' not in html
    assert "–" in write_report([bare], tmp_path / "r.md").read_text()


def test_half_measured_runs_get_figures_and_hints(runs: list[Run], bare: Run) -> None:
    found = {section.figure.key: section for section in sections(studies([*runs, bare]))}
    assert found["time"].groups
    assert found["time"].missing == {"bare has no verdicts.": f"lingraft verify {bare.path} --images 100"}
    assert "bare has no scores." in found["regions"].missing
    assert list(found["regions"].groups) == [""], "equal scores of parent and child are drawn once"
    assert [panel.title for panel in found["regions"].groups[""]] == ["base"]


def test_a_hint_does_what_it_says(runs: list[Run], tmp_path: Path) -> None:
    moved = [Run(shutil.copytree(run.path, tmp_path / run.path.name)) for run in runs]
    moved[1].grafted_scores_path.unlink()
    section = next(section for section in sections(studies(moved)) if section.figure.key == "histograms")
    assert not section.groups
    (command,) = section.missing.values()
    assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0
    section = next(section for section in sections(studies(moved)) if section.figure.key == "histograms")
    assert section.groups
    assert not section.missing


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.htm"])
def test_another_suffix_is_refused(bare: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(LingraftError, match=r"\.html, \.md, \.csv, \.tex"):
        write_report([bare], tmp_path / name)


def test_a_folder_that_is_no_run_is_refused(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(LingraftError, match="nothing is not a run folder"):
        write_report([bare, tmp_path / "nothing"], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LingraftError, match="no runs"):
        write_report([], tmp_path / "r.html")


def test_a_figure_of_ones_own_is_part_of_the_page(bare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingraft.report.figures.FIGURES", figures := dict(FIGURES))

    @figure("names", "Names", "Length of the names", "A figure that nobody needs.")
    def names(studies: Sequence[Study]) -> Drawn:
        longest = max(len(study.name) for study in studies)
        return {"all": [Panel("names", f"The longest has {longest} letters.", lambda axes: axes.bar(0, longest))]}, {}

    assert list(figures) == [*FIGURES, "names"]
    html = write_report([bare], tmp_path / "r.html").read_text()
    assert '<section id="names"' in html
    assert 'href="#names">Names</a>' in html
    assert 'aria-label="The longest has 4 letters."' in html
