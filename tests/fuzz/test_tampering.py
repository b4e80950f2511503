"""A short tampering campaign; `make fuzz` is the long one, which says what it does."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CAMPAIGN = Path(__file__).with_name("tampering") / "campaign.py"


def campaign(table: Path, *options: str) -> dict[str, Any]:
    """The figures of a campaign, which ends as they say."""

    def without_limit() -> None:
        """The limit of these tests is for readers, not for a process that has PyTorch and onnxruntime."""
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    command = [sys.executable, str(CAMPAIGN), "--each", "1", "--workers", "1", "--out", str(table), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, preexec_fn=without_limit)
    assert table.exists(), done.stdout + done.stderr
    figures = json.loads(table.read_text())
    failures = sum(figures["total"].get(verdict, 0) for verdict in ("false", "crash", "slow", "memory"))
    assert done.returncode == (failures > 0), done.stdout + done.stderr
    return {**figures, "failures": failures, "text": done.stdout}


def test_nothing_false_is_accepted(tmp_path: Path) -> None:
    """Of a few hundred changed certificates and files, about five networks."""
    found = campaign(tmp_path / "x.json", "--count", "250", "--networks", "dense,few,residual with,grafted before,hand")
    total = found["total"]
    assert found["failures"] == 0, found["text"]
    assert total["mutations"] == 250
    assert total["accepted"] > 20  # true claims, so the checker does not reject all there is
    assert total["known false"] > 20


@pytest.mark.parametrize(
    ("bug", "options"),
    [
        ("breakpoint", ["--networks", "short", "--only", "forged", "--count", "240"]),
        ("region", ["--networks", "dense", "--only", "claim made false", "--count", "60"]),
        ("slope", ["--networks", "leaky", "--only", "onnx: fields", "--count", "40"]),
        ("half", ["--networks", "few", "--only", "claim made false", "--count", "40"]),
    ],
)
def test_a_bug_in_the_checker_is_found(tmp_path: Path, bug: str, options: list[str]) -> None:
    """The campaign can fail."""
    found = campaign(tmp_path / "x.json", "--plant", bug, *options)
    assert found["total"].get("false", 0) > 0, found["text"]
