"""Tab completes commands, options and names, at once, and the names are those that exist."""

import os
import subprocess
import sys

import pytest

from lingraft.attack.registry import FUNCTIONS
from lingraft.cli.completion import NAMES, offer
from lingraft.data import DATASETS
from lingraft.grafting import INSTABILITIES, RANKS, SIGNIFICANCES
from lingraft.grafting import METHODS as GRAFTING
from lingraft.model import zoo
from lingraft.solver.methods import METHODS as BOUND_METHODS
from lingraft.training import METHODS, PRESETS, SCHEDULES
from lingraft.training.initialization import INITIALIZATIONS
from lingraft.work.score import SPLITS
from lingraft.work.vnncomp.other_verifiers import TOOLS


def test_the_names_that_are_offered_are_those_that_are_known():
    known = {
        "data": DATASETS,
        "fetched": [name for name, spec in DATASETS.items() if spec.source],
        "model": zoo.MODELS,
        "training": METHODS,
        "grafting": [*GRAFTING, "auto"],
        "instability": INSTABILITIES,
        "attack": ["pgd", *FUNCTIONS],
        "bounds": BOUND_METHODS,
        "significance": SIGNIFICANCES,
        "ranks": RANKS,
        "split": SPLITS,
        "initialization": INITIALIZATIONS,
        "verifier": TOOLS,
        "preset": PRESETS,
        "schedule": SCHEDULES,
    }
    for kind, names in known.items():
        assert sorted(NAMES[kind]) == sorted(names), kind


def test_only_what_fits_is_offered():
    assert offer("model")("conv-b") == ["conv-big", "conv-big-half"]
    assert offer("data")("x") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lingraft ver", {"verify"}),
        ("lingraft train --data mn", {"mnist"}),
        ("lingraft graft runs --method hy", {"hydra"}),
        ("lingraft evaluate runs --rest", {"--restarts"}),
    ],
)
def test_the_shell_gets_them_without_loading_torch(line, expected):
    words = line.split()
    environment = {
        **os.environ,
        "_LINGRAFT_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code = (
        "import sys, atexit; sys.argv = ['lingraft'];"
        "atexit.register(lambda: print(bool({'torch', 'numpy', 'matplotlib'} & set(sys.modules)), file=sys.stderr));"
        "from lingraft.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert set(done.stdout.split()) == expected, done.stderr
    assert done.stderr.strip() == "False"
