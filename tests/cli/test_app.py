"""The command as a whole: instant, in the order of the work, and errors in one line."""

import subprocess
import sys

import pytest

COMMANDS = ["demo", "data", "zoo", "train", "evaluate", "score", "select", "graft", "verify", "report", "export"]


def lingraft(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lingraft", *arguments], capture_output=True, text=True)


def test_help_lists_the_commands_in_the_order_of_the_work():
    shown = [line.split()[1] for line in lingraft("--help").stdout.splitlines() if line.startswith("│ ")]
    assert [name for name in shown if name in COMMANDS] == COMMANDS


def test_help_loads_nothing_heavy():
    code = "import sys, lingraft.cli; print([m for m in ('torch', 'numpy', 'scipy', 'onnx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    done = lingraft(command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_an_error_is_one_line_and_exit_code_1(tmp_path):
    done = lingraft("verify", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_version():
    assert lingraft("--version").stdout.startswith("lingraft ")
