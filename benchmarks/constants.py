"""What the constants of the search do: each halved and doubled, alone, on problems of several kinds of networks.

    LINGRAFT_PROBLEMS=folder python benchmarks/constants.py FOLDER:IMAGE … [--only bab.TIGHTENED …] [--json FILE]

Folders are those of `verify.py` and `own_set.py`; several may be given, separated by colons as in PATH. One thread,
CPU-seconds. The search is guided by measured times, so no two runs are the same: the first row is run `--repeat` times,
and what lies within its range says nothing. What is bound when a function is defined stays: steps on α before branching
have their usual rate. `--json` keeps what was measured, and goes on with what is missing.
"""

import argparse
import importlib
import inspect
import json
import os
import pkgutil
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import lingraft.solver
from lingraft import load_onnx
from lingraft.pool.problems import decide
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier

#: Module and name of everything that is a choice; what rounding and proofs rest on is none.
CONSTANTS = (
    "verifier.LOOK_STEPS", "verifier.QUICK_STEPS", "verifier.LONG_STEPS", "verifier.ALPHA_STEPS", "verifier.ATTACKING",
    "ascent.RATE", "ascent.WINDOW", "bab.REGION_STEPS", "bab.MOST_STEPS", "bab.TIGHTENED", "bab.TIGHTENING_STEPS",
    "bab.WORTHWHILE", "bab.WORTHWHILE_FACETS", "branching.CANDIDATES", "facets.STEPS", "worth.HALF_LIFE",
    "worth.DEEPEST", "worth.STEPS_OF_A_SPLIT", "worth.LASTING", "worth.LONGEST_PAUSE", "worth.SURPLUS", "worth.LONGEST",
)  # fmt: skip


class Problem:
    """One image of a folder, ready to be decided."""

    def __init__(self, name: str):
        folder, image = name.rsplit(":", 1)
        roots = [Path(root) for root in os.environ.get("LINGRAFT_PROBLEMS", "").split(":")]
        path = next(root / folder for root in roots if (root / folder / "problems.npz").exists())
        with np.load(path / "problems.npz") as problems:
            given = {key: torch.from_numpy(problems[key]) for key in ("image", "label", "lower", "upper")}
        model = load_onnx(path / "model.onnx")
        self.name, self.index = name, int(image)
        self.request = Request(model, given["image"], given["label"], lower=given["lower"], upper=given["upper"])

    def run(self, limit: float) -> tuple[str, float, int]:
        """Verdict, CPU-seconds, domains."""
        verifier, started = Verifier(self.request.network), time.process_time()
        result = decide(verifier, self.request.problem(self.index), limit, float("inf"), self.index)
        return result.verdict, time.process_time() - started, result.domains


@contextmanager
def changed(constant: str, factor: float) -> Iterator[float]:
    """A constant times a factor, wherever the solver has it; gives the value that it has then."""
    home, name = constant.split(".")
    value = getattr(_module(home), name)
    new = max(1, round(value * factor)) if isinstance(value, int) else value * factor
    imports = re.compile(rf"from lingraft\.solver\.{home} import [^\n]*\b{name}\b")
    places = [_module(home), *(module for module in _modules() if imports.search(inspect.getsource(module)))]
    for module in places:
        setattr(module, name, new)
    try:
        yield new
    finally:
        for module in places:
            setattr(module, name, value)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"lingraft.solver.{name}")


def _modules() -> list[ModuleType]:
    return [_module(found.name) for found in pkgutil.iter_modules(lingraft.solver.__path__)]


def measure(constants: list[str], problems: list[Problem], limit: float, repeat: int, path: Path | None) -> Any:
    """Row → problem → [verdict, seconds, domains], one for each run."""
    found: dict[str, dict[str, list[list[Any]]]] = json.loads(path.read_text()) if path and path.exists() else {}
    settings = [(constant, factor) for constant in constants for factor in (0.5, 2.0)]
    for constant, factor in [("", 1.0), *settings]:
        with changed(constant or "bab.TIGHTENED", factor) as value:
            row = found.setdefault(f"`{constant}` = {value:g}" if constant else "as it is", {})
            for problem in problems:
                runs = row.setdefault(problem.name, [])
                while len(runs) < (1 if constant else repeat):
                    runs.append(list(problem.run(limit)))
                    print(constant, factor, problem.name, runs[-1], flush=True)
                    if path:
                        path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def shown(runs: list[list[Any]]) -> str:
    """Seconds and domains, or their range; what was not decided says so."""
    seconds, domains = [run[1] for run in runs], [run[2] for run in runs]
    text = f"{min(seconds):.1f}" + (f" to {max(seconds):.1f}" if len(runs) > 1 else "") + f" s, {min(domains)}"
    text += f" to {max(domains)}" if max(domains) > min(domains) else ""
    return text + "".join(sorted({f", {run[0]}" for run in runs} - {", verified", ", falsified"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="+", help="FOLDER:IMAGE")
    parser.add_argument("--only", nargs="+", default=list(CONSTANTS), help="some of the constants")
    parser.add_argument("--limit", type=float, default=30.0, help="CPU-seconds for each")
    parser.add_argument("--repeat", type=int, default=3, help="runs of the first row")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    time.monotonic = time.process_time
    problems = [Problem(name) for name in given.problems]
    found = measure(given.only, problems, given.limit, given.repeat, given.json)
    print("| |" + "".join(f" {problem.name.replace(':', ' ')} |" for problem in problems))
    print("| --- |" + " --- |" * len(problems))
    for row, cells in found.items():
        print(f"| {row} |" + "".join(f" {shown(cells[problem.name])} |" for problem in problems))


if __name__ == "__main__":
    main()
