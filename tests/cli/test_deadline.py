"""When a process began: before its first line, and not long before."""

import subprocess
import sys

import pytest

from lingraft.cli.deadline import leave

CODE = """
import time
first = time.monotonic()
time.sleep(0.3)
from lingraft.cli.deadline import process_began
began = process_began()
print(first - began, time.monotonic() - began)
"""


def test_a_process_began_before_its_first_line() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    before, until = map(float, done.stdout.split())
    assert -0.02 <= before < 30  # the system counts in hundredths of a second
    assert until >= 0.3


def test_leaving_says_all_and_clears_up_nothing() -> None:
    code = (
        "import atexit, sys; from lingraft.cli.deadline import leave; atexit.register(print, 'cleared');"
        "print('said'); print('loud', file=sys.stderr); leave(12)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (12, "said\n", "loud\n")


def test_another_program_is_not_left(capsys: pytest.CaptureFixture[str]) -> None:
    leave(12)
