"""The command as a whole: instant, in the order of the work, and errors in one line."""

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lingraft.cli import WORKFLOW, app

COMMANDS = [name for names in WORKFLOW.values() for name in names]


def lingraft(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lingraft", *arguments], capture_output=True, text=True)


def test_help_lists_the_commands_in_the_order_of_the_work():
    printed = lingraft().stdout  # without a command, too
    shown = [line.split()[1] for line in printed.splitlines() if line.startswith("│ ")]
    assert [name for name in shown if name in COMMANDS] == COMMANDS
    assert all(heading in printed for heading in WORKFLOW)


def test_every_command_has_its_place_in_the_help():
    assert sorted(COMMANDS) == sorted(get_command(app).commands)


def _options() -> dict[str, dict[str, tuple[list[str], str]]]:
    """Name of an option → command → its spellings and its help."""
    found: dict[str, dict[str, tuple[list[str], str]]] = {}
    for name, command in get_command(app).commands.items():
        for option in command.params:
            if option.opts[0].startswith("-"):
                found.setdefault(option.name, {})[name] = sorted(option.opts), option.help or ""
    return found


def test_an_option_is_spelled_alike_in_all_commands():
    for name, commands in _options().items():
        assert len({tuple(spellings) for spellings, _ in commands.values()}) == 1, (name, commands)


@pytest.mark.parametrize("name", ["eps", "clip", "data", "workers", "memory", "threads", "seed", "device", "as_json"])
def test_shared_options_say_the_same_in_all_commands(name):
    own = {"eps": ["train", "save", "front"], "data": ["train", "save", "front"], "workers": ["vnncomp"]}.get(
        name, []
    )  # where it means something else
    assert len({text for command, (_, text) in _options()[name].items() if command not in own}) == 1


def test_every_command_prints_json():
    assert set(_options()["as_json"]) == set(COMMANDS)


@pytest.mark.slow
def test_a_misspelled_command_or_option_is_answered_with_the_nearest_one():
    assert "verify" in lingraft("verfy").stderr
    assert "--restarts" in lingraft("evaluate", "run", "--restart", "3").stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["verify", "--help"], ["data", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]):
    """So it is instant, however fast or slow the machine is."""
    heavy = {"torch", "numpy", "scipy", "onnx", "onnxruntime", "matplotlib", "sklearn", "ray", "PIL", "jinja2", "yaml"}
    code = (
        "import sys, atexit; sys.argv[0] = 'lingraft';"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "from lingraft.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.stdout
    loaded = set(done.stderr.split())
    assert "lingraft.cli.verify" in loaded
    assert loaded & heavy == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.stdout


@pytest.mark.slow
def test_an_error_is_one_line_and_exit_code_1(tmp_path):
    done = lingraft("verify", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_version():
    assert lingraft("--version").stdout.startswith("lingraft ")
