"""`lingraft demo`, end to end."""

import os
import subprocess
import sys
from pathlib import Path

import lingraft

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_the_demo_shows_that_robust_training_works(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lingraft", "demo"], cwd=tmp_path, capture_output=True, text=True, env=ONE_THREAD
    )
    assert done.returncode == 0, done.stderr
    accuracies = {
        line.split()[0]: [float(word.rstrip("%")) for word in line.split() if word.endswith("%")]
        for line in done.stdout.splitlines()
        if "accuracy" in line
    }
    (standard, standard_attacked), (robust, robust_attacked) = accuracies["standard"], accuracies["robust"]
    assert standard > 90
    assert robust > 90
    assert robust_attacked > standard_attacked + 10
    assert robust_attacked > 75
    assert (tmp_path / "runs/demo/robust/figures/attacks.png").stat().st_size > 10_000
    assert len(done.stdout.splitlines()) < 12
    lingraft.load(tmp_path / "runs/demo/robust")
