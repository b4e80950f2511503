"""`lingraft demo`, end to end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lingraft

pytestmark = pytest.mark.slow

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_the_demo_tells_the_whole_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lingraft", "demo"], cwd=tmp_path, capture_output=True, text=True, env=ONE_THREAD
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "VA " in line and "SA " in line]
    sa, ra, va = zip(*([float(x) for x in re.findall(r"[SRV]A +([\d.]+)%", row)] for row in rows), strict=True)
    assert len(rows) == 4, done.stdout
    assert min(sa) > 90
    assert ra[1] > ra[0] + 10, "adversarial training helps against attacks"
    assert ra[1] > 75
    assert va[3] > va[1] + 20, "grafting makes robustness provable"
    assert all(proven <= attacked + 15 for proven, attacked in zip(va, ra, strict=True))
    for name in ("story", "attacks"):
        assert (tmp_path / f"runs/demo/robust/figures/{name}.png").stat().st_size > 10_000
    page = (tmp_path / "runs/demo/report.html").read_text()
    assert "report: runs/demo/report.html" in done.stdout
    assert "lingraft demo" in page, "the command that made the runs"
    assert "To add it" not in page.split('id="regions"')[0], "every figure before the scores has its data"
    assert len(done.stdout.splitlines()) < 14
    lingraft.load(tmp_path / "runs/demo/grafted-80")
