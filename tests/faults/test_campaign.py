"""A short fault campaign; `make faults` is the long one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_nothing_is_lost(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    faults = "kill -9 at,disk full,cut short"
    options = ["--times", "1", "--story", "train,verify", "--only", faults, "--out", str(table)]
    done = subprocess.run([sys.executable, CAMPAIGN, *options], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    tallies = [tally for tally in json.loads(table.read_text()) if not tally["skipped"]]
    assert all(tally["injected"] == tally["survived"] for tally in tallies)
    for fault in ("kill -9 at a file operation", "kill -9 at a random moment"):
        assert {tally["command"] for tally in tallies if tally["fault"] == fault} == {"train", "verify"}
    assert sum(tally["injected"] for tally in tallies if tally["fault"].startswith("file cut short")) >= 8
