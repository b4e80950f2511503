"""The table of all runs, in every format."""

import csv
import io
from pathlib import Path

import pytest

from lingraft.report.write import write_report
from lingraft.runs import Run


def test_figures_agree_with_the_summaries(runs: list[Run], tmp_path: Path) -> None:
    table = list(csv.DictReader(io.StringIO(write_report(runs, tmp_path / "t.csv").read_text())))
    assert [row["run"] for row in table] == ["base", "grafted"]
    for row, run in zip(table, runs, strict=True):
        (proof,) = run.summary().verification.values()
        (attack,) = run.summary().evaluation.values()
        for name in ("va", "unr", "time"):
            assert float(row[name]) == pytest.approx(getattr(proof, name), abs=1e-3), name
        for name in ("verified", "falsified", "unknown", "misclassified", "images", "proofs", "proofs_checked"):
            assert int(row[name]) == getattr(proof, name)
        assert float(row["sa"]) == pytest.approx(attack.sa)
        assert float(row["ra"]) == pytest.approx(attack.ra)
        assert row["attack"] == "pgd-5x1"
    assert (table[0]["proofs"], table[0]["proofs_checked"]) == ("0", "0")
    assert table[1]["proofs"] == table[1]["proofs_checked"] == table[1]["verified"] != "0"
    assert float(table[0]["grafted"]) == 0
    assert float(table[1]["grafted"]) == pytest.approx(0.7, abs=0.01)
    assert float(table[1]["unr"]) < float(table[0]["unr"])


def test_markdown_and_latex_have_the_same_cells(runs: list[Run], tmp_path: Path) -> None:
    markdown = write_report(runs, tmp_path / "t.md").read_text()
    latex = write_report(runs, tmp_path / "t.tex").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines() if line[:1] == "|"]
    assert len({len(row) for row in rows}) == 1
    body = [line for line in latex.splitlines() if line.endswith("\\\\")]
    assert len(body) == 1 + len(runs)
    for row, line in zip(rows[2:], body[1:], strict=True):
        cells = [cell.strip() for cell in line.removesuffix("\\\\").split(" & ")]
        assert cells == [cell.replace("–", "--").replace("_", "\\_") for cell in row]
    assert "booktabs" in latex
    assert "SA \\%" in latex


def test_latex_is_escaped(bare_run, tmp_path: Path) -> None:
    run = bare_run(tmp_path / "50%_of_a&b")
    assert "50\\%\\_of\\_a\\&b & " in write_report([run], tmp_path / "t.tex").read_text()
    assert write_report(run, tmp_path / "one.tex").read_text() == (tmp_path / "t.tex").read_text()
