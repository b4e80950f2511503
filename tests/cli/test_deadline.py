"""When a process began: before its first line, and not long before."""

import subprocess
import sys

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
