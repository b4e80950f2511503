"""The verifiers that lingraft can be compared with: where to look for each, how to call it and read its answer."""

import importlib.metadata
import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.names import lookup
from lingraft.work.vnncomp.tool_runner import WORDS, Call, Tool

_ASSIGNED = re.compile(r"^\s*x(\d+) = (\S+)", re.MULTILINE)


def find_tool(name: str, given: str | None) -> tuple[Tool, list[str] | None]:
    """A tool by its name, and the beginning of its command: the one given (a path or a whole command), else searched.

    None if it is not installed; a given one that does not exist is a LingraftError.
    """
    tool = lookup("verifier", name, TOOLS)
    if given is None:
        return tool, tool.locate()
    command = shlex.split(given)
    if not command or shutil.which(command[0]) is None:
        if len(command) == 1 and Path(command[0]).is_file():
            return tool, [sys.executable, *command]  # a script that is not executable
        raise LingraftError(f"--tool {given!r} is not a program that can be run. Give its path.")
    return tool, command


# Marabou: its program reads ONNX and VNN-LIB; maraboupy installs it.


def _find_marabou() -> list[str] | None:
    for name in ("Marabou", "marabou"):
        program = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
        if program:
            return [program]
    # installed without its program, or where PATH does not lead
    return [sys.executable, "-m", "maraboupy"] if importlib.util.find_spec("maraboupy") else None


def _ask_marabou(call: Call) -> list[str]:
    seconds = max(1, round(call.timeout))  # whole ones; 0 would be no limit
    return [str(call.onnx), str(call.vnnlib), "--timeout", str(seconds), "--verbosity", "0"]


def _read_marabou(printed: str, call: Call) -> str:
    word = next((line.strip().lower() for line in printed.splitlines() if line.strip().lower() in WORDS), "")
    return word + "".join(f"\n(X_{i} {value})" for i, value in _ASSIGNED.findall(printed))


# neuralsat: the package on PyPI has no program, only src/main.py.


def _find_neuralsat() -> list[str] | None:
    program = shutil.which("neuralsat")
    if program:
        return [program]
    try:
        files = importlib.metadata.files("neuralsat") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    main = next((file for file in files if file.as_posix() == "src/main.py"), None)
    return None if main is None else [sys.executable, str(main.locate())]


def _ask_neuralsat(call: Call) -> list[str]:
    files = ["--net", str(call.onnx), "--spec", str(call.vnnlib), "--result_file", str(call.out), "--export_cex"]
    return [*files, "--timeout", f"{call.timeout:g}", "--device", "cpu", "--verbosity", "0"]


def _read_file(printed: str, call: Call) -> str:
    return call.out.read_text(encoding="utf-8", errors="replace") if call.out.exists() else ""


# α,β-CROWN: complete_verifier/abcrown.py.


def _find_crown() -> list[str] | None:
    for name in ("abcrown", "abcrown.py"):
        program = shutil.which(name)
        if program:
            return [program]
    return None


def _ask_crown(call: Call) -> list[str]:
    files = ["--onnx_path", str(call.onnx), "--vnnlib_path", str(call.vnnlib), "--cex_path", str(call.out)]
    limits = ["--timeout", f"{call.timeout:g}", "--device", "cpu", "--conv_mode", "matrix"]
    return [*files, "--save_adv_example", *limits]


def _read_crown(printed: str, call: Call) -> str:
    answers = re.findall(r"^Result:\s*(\S+)", printed, re.MULTILINE)
    return f"{answers[-1] if answers else ''}\n{_read_file(printed, call)}"


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("marabou", "pip install 'lingraft[marabou]'", "batchnorm", _find_marabou, _ask_marabou, _read_marabou),
        Tool(
            "neuralsat",
            "pip install neuralsat in an environment of its own, and --tool 'ITS/bin/python SITE-PACKAGES/src/main.py'",
            "output",
            _find_neuralsat,
            _ask_neuralsat,
            _read_file,
        ),
        Tool(
            "alpha-beta-crown",
            "get github.com/Verified-Intelligence/alpha-beta-CROWN, and --tool 'python …/complete_verifier/abcrown.py'",
            "output",
            _find_crown,
            _ask_crown,
            _read_crown,
        ),
    )
}
