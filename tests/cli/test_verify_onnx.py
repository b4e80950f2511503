"""`lingraft verify --onnx --vnnlib`: answers, exit codes, and one clear line for every mistake."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from lingraft import LingraftError, export_onnx, verify_property
from lingraft.cli import app
from lingraft.formats.answer import read_counterexample
from lingraft.formats.vnnlib import read_vnnlib

pytestmark = pytest.mark.slow

HEAD = "(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n"
BOX = "(assert (>= X_0 -1))\n(assert (<= X_0 1))\n(assert (>= X_1 -1))\n(assert (<= X_1 1))\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A network with outputs between 0 and 2, and a property that it has."""
    first, last = nn.Linear(2, 2), nn.Linear(2, 1)
    with torch.no_grad():
        first.weight.copy_(torch.eye(2)), first.bias.zero_()
        last.weight.fill_(1.0), last.bias.zero_()
    export_onnx(nn.Sequential(first, nn.ReLU(), last).eval(), tmp_path / "net.onnx", input_shape=(2,))
    (tmp_path / "p.vnnlib").write_text(HEAD + BOX + "(assert (>= Y_0 2.5))\n")
    return tmp_path / "net.onnx", tmp_path / "p.vnnlib"


def call(*arguments: object):
    result = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    if isinstance(result.exception, LingraftError):
        raise result.exception
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def verify(files: tuple[Path, Path], *arguments: object):
    return call("--onnx", files[0], "--vnnlib", files[1], *arguments)


def test_unsat(files) -> None:
    result = verify(files, "--timeout", 60)
    assert (result.stdout, result.exit_code) == ("unsat\n", 0)


def test_sat_with_a_counterexample_that_is_one(files) -> None:
    files[1].write_text(HEAD + BOX + "(assert (>= Y_0 1.9))\n")
    result = verify(files)
    assert result.exit_code == 10
    assert result.stdout.startswith("sat\n((X_0 ")
    x = read_counterexample(result.stdout, 2)
    (box,) = read_vnnlib(files[1], 2, 1).boxes
    assert ((x >= box.lower) & (x <= box.upper)).all()
    assert (x == x.astype(np.float32)).all()
    session = onnxruntime.InferenceSession(str(files[0]), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"input": x.astype(np.float32)[None]})[0][0]
    assert y >= 1.9
    assert f"(Y_0 {y}" in result.stdout


def test_json(files) -> None:
    packed = files[1].with_suffix(".vnnlib.gz")
    packed.write_bytes(gzip.compress(files[1].read_bytes()))
    found = json.loads(verify((files[0], packed), "--json").stdout)
    assert (found["answer"], found["counterexample"], found["vnnlib"]) == ("unsat", None, str(packed))
    assert 0 <= found["seconds"] < 60
    files[1].write_text(HEAD + BOX + "(assert (or (and (>= Y_0 3)) (and (>= Y_0 1.5) (<= Y_0 1.6))))\n")
    result = verify(files, "--json")
    assert result.exit_code == 10
    found = json.loads(result.stdout)["counterexample"]
    assert 1.5 <= found["y"][0] <= 1.6
    assert sum(max(x, 0) for x in found["x"]) == pytest.approx(found["y"][0], abs=1e-6)


def test_timeout(files) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 1)]
    export_onnx(nn.Sequential(*layers).eval(), files[0], input_shape=(2,))
    files[1].write_text(HEAD + BOX.replace("1)", "90)") + "(assert (>= Y_0 60))\n")
    result = verify(files, "--timeout", 0.5)
    assert (result.stdout, result.exit_code) == ("timeout\n", 12)


def test_reading_is_part_of_the_time(files) -> None:
    files[1].write_text(HEAD + BOX + "(assert (or (>= Y_0 60) (<= Y_0 -1)))\n" + BOX * 200_000)
    answer = verify_property(*files, timeout=0.1, progress=False).answer
    assert (answer.word, answer.stage) == ("timeout", "reading")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOX, "X_0 is not declared"),
        (HEAD.replace("(declare-const X_1 Real)\n", ""), "1 inputs, but the network has 2"),
        (HEAD.replace("Y_0", "X_2") + "(declare-const Y_0 Real)", "3 inputs, but the network has 2"),
        (HEAD + "(declare-const Y_1 Real)\n" + BOX, "2 outputs, but the network has 1"),
        (HEAD + BOX.replace("(<= X_1 1)", "(<= X_1 -2)"), "line 7: the bounds of X_1 contradict each other"),
        (HEAD + BOX.replace("(assert (<= X_1 1))", ""), "X_1 has no upper bound"),
        (HEAD + BOX + "(assert (>= Y_0 2.5)", "ends inside"),
        (HEAD + BOX + "(assert (== Y_0 2.5))", "not understood"),
    ],
)
def test_wrong_properties(files, text, message) -> None:
    files[1].write_text(text)
    with pytest.raises(LingraftError, match=message):
        verify(files)


def test_wrong_networks(files, tmp_path) -> None:
    whole = files[0].read_bytes()
    for content in (b"", b"not ONNX", whole[: len(whole) // 2], gzip.compress(whole)[:100]):
        files[0].write_bytes(content)
        with pytest.raises(LingraftError, match=r"net\.onnx"):
            verify(files)
    with pytest.raises(LingraftError, match="No such file"):
        verify((tmp_path / "none.onnx", files[1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to verify"),
        (["--onnx", "net.onnx"], "Give --data, a data set or FILE.npz, or --vnnlib"),
        (["--vnnlib", "p.vnnlib"], "--onnx and --vnnlib together"),
        (["run", "--onnx", "net.onnx", "--vnnlib", "p.vnnlib"], "without RUN"),
        (["--onnx", "n", "--vnnlib", "p", "--eps", "0.1", "--images", "3"], "without --images, --eps"),
        (["--onnx", "n", "--vnnlib", "p", "--timeout", "0"], "time limit"),
    ],
)
def test_mistakes(arguments, message) -> None:
    with pytest.raises(LingraftError, match=message):
        call(*arguments)


def test_mistakes_are_one_line_and_exit_code_1(files) -> None:
    files[0].write_bytes(files[0].read_bytes()[:200])
    command = [sys.executable, "-m", "lingraft", "verify", "--onnx", str(files[0]), "--vnnlib", str(files[1])]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error:")
    assert result.stderr.count("\n") == 1
