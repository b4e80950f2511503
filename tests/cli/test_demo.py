"""`lingraft demo`, end to end."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lingraft
from lingraft.cli import app
from lingraft.work import demo

pytestmark = pytest.mark.slow


def test_the_demo_tells_the_whole_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # a third of the images and less than half of the time: a story that is told to a test
    monkeypatch.setattr(demo, "IMAGES", 6)
    monkeypatch.setattr(demo, "TIMEOUT", 2.0)
    done = CliRunner().invoke(app, ["demo"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert demo.machine() in done.stdout, "what is proven in seconds depends on it"
    rows = [line for line in done.stdout.splitlines() if "VA " in line and "SA " in line]
    sa, ra, va = zip(*([float(x) for x in re.findall(r"[SRV]A +([\d.]+)%", row)] for row in rows), strict=True)
    assert len(rows) == 4, done.stdout
    assert min(sa) > 90
    assert ra[1] > ra[0] + 10, "adversarial training helps against attacks"
    assert ra[1] > 75
    assert va[3] > va[1] + 20, "grafting makes robustness provable"
    for name in ("story", "attacks"):
        assert (tmp_path / f"runs/demo/robust/figures/{name}.png").stat().st_size > 10_000
    picture = (tmp_path / "runs/demo/robust/figures/story.svg").read_text()
    assert all(f">{share:.1f}%</text>" in picture for share in (*sa[1:], *ra[1:], *va[1:])), "it shows what is printed"
    page = (tmp_path / "runs/demo/report.html").read_text()
    assert "report: runs/demo/report.html" in done.stdout
    assert "lingraft demo" in page, "the command that made the runs"
    assert "To add it" not in page.split('id="regions"')[0], "every figure before the scores has its data"
    assert len(done.stdout.splitlines()) < 14
    lingraft.load(tmp_path / "runs/demo/grafted-80")
