"""Other verifiers as programs: what they may do wrong."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.vnnlib_write import write_vnnlib
from lingraft.work.vnncomp import tool_runner
from lingraft.work.vnncomp.other_verifiers import TOOLS
from lingraft.work.vnncomp.tool_runner import ToolRunner

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The identity of two numbers, and the property that the first is larger, which only some of the box has."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2)), layer.bias.zero_()
    export_onnx(nn.Sequential(layer, nn.ReLU()).eval(), tmp_path / "net.onnx", input_shape=(2,))
    write_vnnlib(tmp_path / "p.vnnlib", np.zeros(2, np.float32), np.ones(2, np.float32), 0, 2)
    return tmp_path / "net.onnx", tmp_path / "p.vnnlib"


def runner(tool: str, folder: Path, code: str) -> ToolRunner:
    (folder / "program.py").write_text("import sys, time\n" + code)
    return ToolRunner(TOOLS[tool], [sys.executable, str(folder / "program.py")])


#: how each tool says that x = (0.25, 0.75) is a counterexample
SAYS_SAT = {
    "marabou": "print('Network: a\\n\\nsat\\nInput assignment:\\n\\tx0 = 0.250000\\n\\tx1 = 0.750000\\n')",
    "neuralsat": "open(sys.argv[sys.argv.index('--result_file') + 1], 'w').write('sat\\n((X_0 0.25)\\n (X_1 0.75)\\n (Y_0 0.25))')",
    "alpha-beta-crown": "open(sys.argv[sys.argv.index('--cex_path') + 1], 'w').write('((X_0  0.25)\\n(X_1 7.5e-1))')\nprint('Result: sat in 1.2 seconds')",
}
SAYS_UNSAT = {
    "marabou": "print('unsat')",
    "neuralsat": "open(sys.argv[sys.argv.index('--result_file') + 1], 'w').write('unsat\\n')",
    "alpha-beta-crown": "print('Result: unsat in 1.2 seconds')",
}


@pytest.mark.parametrize("tool", SAYS_SAT)
def test_answers(files, tmp_path, tool) -> None:
    answer = runner(tool, tmp_path, SAYS_SAT[tool]).ask(*files, 5.0)
    assert (answer.word, answer.reason) == ("sat", None)
    assert answer.counterexample is not None
    assert answer.counterexample.x.tolist() == [0.25, 0.75]
    assert answer.counterexample.y.tolist() == [0.25, 0.75]
    assert runner(tool, tmp_path, SAYS_UNSAT[tool]).ask(*files, 5.0).word == "unsat"


@pytest.mark.parametrize("values", ["0.75 0.25", "0.5", "nan 1.0"])
def test_counterexamples_that_are_none(files, tmp_path, values) -> None:
    lines = "\n".join(f"x{i} = {value}" for i, value in enumerate(values.split()))
    answer = runner("marabou", tmp_path, f"print('sat'); print({lines!r})").ask(*files, 5.0)
    assert (answer.word, answer.counterexample) == ("sat", None)
    assert "replayed" in str(answer.reason)


def test_counterexample_beside_the_box_is_moved_into_it(files, tmp_path) -> None:
    answer = runner("marabou", tmp_path, "print('sat\\nx0 = 0.1\\nx1 = 1.0000001')").ask(*files, 5.0)
    assert answer.counterexample is not None
    assert answer.counterexample.x.tolist() == [0.1, 1.0]


def test_no_answer_is_an_error_and_no_end_a_timeout(files, tmp_path, monkeypatch) -> None:
    answer = runner("marabou", tmp_path, "print('Traceback')\nprint('KeyError: 7')\nsys.exit(1)").ask(*files, 5.0)
    assert (answer.word, answer.reason) == ("error", "exit code 1: KeyError: 7")
    monkeypatch.setattr(tool_runner, "GRACE", 0.2)
    started = time.monotonic()
    answer = runner("marabou", tmp_path, "time.sleep(60)").ask(*files, 0.2)
    assert answer.word == "timeout"
    assert time.monotonic() - started < 10
