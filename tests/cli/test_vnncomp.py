"""`lingraft vnncomp`: a benchmark from beginning to end; killed, it goes on where it was. And the three scripts."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import lingraft
from lingraft import LingraftError, export_onnx
from lingraft.cli import app
from lingraft.files import read_lines
from lingraft.formats.answer import read_counterexample
from lingraft.formats.vnnlib_write import write_instances, write_vnnlib

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "vnncomp_scripts"
#: radius of the box of each instance, and the answer
CASES = [(0.001, "unsat"), (2.0, "sat"), (0.002, "unsat"), (3.0, "sat")]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3)).eval()
    folder = tmp_path / "bench"
    export_onnx(model, folder / "net.onnx", input_shape=(4,))
    x = torch.rand(1, 4)
    label = int(model(x).argmax())
    for i, (eps, _) in enumerate(CASES):
        write_vnnlib(folder / f"p{i}.vnnlib", (x - eps).numpy(), (x + eps).numpy(), label, 3)
    packed = folder / "p1.vnnlib.gz"
    packed.write_bytes(gzip.compress((folder / "p1.vnnlib").read_bytes()))
    (folder / "p1.vnnlib").unlink()
    write_instances(folder, "net.onnx", [f"p{i}.vnnlib" for i in range(len(CASES))], 30)
    return folder


def call(*arguments: object):
    result = CliRunner().invoke(app, ["vnncomp", *map(str, arguments)])
    if isinstance(result.exception, LingraftError):
        raise result.exception
    return result


def words(folder: Path) -> list[str]:
    with open(folder / "results.csv", newline="") as file:
        return [row[4] for row in csv.reader(file)]


def test_a_whole_benchmark_in_another_process(bench: Path) -> None:
    result = call(bench, "--workers", 1, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["counts"] == {"unsat": 2, "sat": 2, "unknown": 0, "timeout": 0, "error": 0}
    results = bench / "results"
    assert figures["results"] == str(results / "results.csv")
    assert words(results) == [word for _, word in CASES]
    with gzip.open(results / "net_p1.counterexample.gz", "rt") as file:
        assert read_counterexample(file.read(), 4) is not None
    lines = (results / "answers.jsonl").read_bytes()
    again = json.loads(call(bench, "--workers", 0, "--json").stdout)
    assert again == figures
    assert lingraft.benchmark(bench, workers=0).figures() == figures, "Python goes on from the command's answers"
    assert (results / "answers.jsonl").read_bytes() == lines, "nothing was done again"


def test_here_with_a_table_and_an_instance_that_cannot_be_read(bench: Path, tmp_path: Path) -> None:
    (bench / "p2.vnnlib").write_text("(declare-const X_0 Real)\n")
    with open(bench / "instances.csv", "a") as file:
        file.write("net.onnx,missing.vnnlib,5\n")
    result = call(bench, "--workers", 0, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert words(tmp_path / "out") == ["unsat", "sat", "error", "sat", "error"]
    for text in ("unsat (the property holds) │         1", "but the network has 4", "missing.vnnlib"):
        assert text in result.stdout


def test_killed_and_run_again(bench: Path) -> None:
    answers = bench / "results" / "answers.jsonl"
    command = [sys.executable, "-m", "lingraft", "vnncomp", str(bench), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not read_lines(answers) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = read_lines(answers)
    assert done
    assert call(bench, "--workers", 0).exit_code == 0
    assert read_lines(answers)[: len(done)] == done
    assert len(read_lines(answers)) == len(CASES)
    assert words(bench / "results") == [word for _, word in CASES]


def test_against_a_record(bench: Path, tmp_path: Path) -> None:
    record = tmp_path / "peers.csv"
    said = ["unsat", "sat", "timeout", "unsat"]
    lines = [f"net.onnx,p{i}.vnnlib,other,{word},1" for i, word in enumerate(said)]
    record.write_text("\n".join(["network,property,tool,answer,seconds", *lines]))
    result = call(bench, "--workers", 0, "--against", record)
    assert result.exit_code == 1, "the last is a contradiction"
    assert "net.onnx, p3.vnnlib: lingraft: sat, other: unsat" in result.stdout
    figures = lingraft.benchmark(bench, against=record, workers=0).figures()
    assert {tool: score["points"] for tool, score in figures["scores"].items()} == {"lingraft": 40, "other": -130}
    with pytest.raises(LingraftError, match="cannot read"):
        call(bench, "--against", tmp_path / "none.csv")


def test_bad_options(bench: Path) -> None:
    for arguments, message in [(["--timeout", "0"], "time limit"), (["--workers", "-1"], "workers")]:
        with pytest.raises(LingraftError, match=message):
            call(bench, *arguments)
    with pytest.raises(LingraftError, match=r"instances\.csv"):
        call(bench / "nowhere")


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LINGRAFT": str(Path(sys.executable).parent / "lingraft")}
    command = [str(SCRIPTS / name), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    if not (Path(sys.executable).parent / "lingraft").exists():
        pytest.skip("the command lingraft is not installed beside this Python")
    return tmp_path / "results.txt"


def test_scripts_run_an_instance(bench: Path, results: Path) -> None:
    files = (bench / "net.onnx", bench / "p1.vnnlib.gz")
    assert script("prepare_instance.sh", "v1", "bench", *files).returncode == 0
    assert script("run_instance.sh", "v1", "bench", *files, results, 30).returncode == 0
    assert results.read_text().startswith("sat\n")
    assert read_counterexample(results.read_text(), 4) is not None
    assert not results.with_name("results.txt.part").exists()


def test_scripts_say_error(bench: Path, results: Path) -> None:
    files = (bench / "net.onnx", bench / "none.vnnlib")
    assert script("prepare_instance.sh", "v1", "bench", *files).returncode == 1
    failed = script("run_instance.sh", "v1", "bench", *files, results, 30)
    assert (failed.returncode, results.read_text()) == (1, "error\n")
    for name in ("install_tool.sh", "prepare_instance.sh", "run_instance.sh"):
        assert script(name, "v2").returncode == 1
        assert subprocess.run(["bash", "-n", SCRIPTS / name]).returncode == 0


def test_scripts_run_several_networks(bench: Path, results: Path) -> None:
    """A list of networks as the competition of 2026 hands it over, and a counterexample as VNN-LIB 2.0 has it."""
    networks = f"[('f', '{bench / 'net.onnx'}'), (\"g\", '{bench / 'net.onnx'}')]"
    tensors = "".join(
        f"(declare-network {name} (declare-input X_{name} real [4]) (declare-output Y_{name} real [1,3]))\n"
        for name in "fg"
    )
    bounds = "".join(f"(assert (and (<= X_{n}[{i}] 1) (>= X_{n}[{i}] 0)))\n" for n in "fg" for i in range(4))
    (bench / "two.vnnlib").write_text(f"(vnnlib-version <2.0>)\n{tensors}{bounds}(assert (< Y_f[0,0] Y_g[0,0]))")
    files = (networks, bench / "two.vnnlib")
    assert script("prepare_instance.sh", "v1", "bench", *files).returncode == 0
    missing = f"[('f', '{bench / 'net.onnx'}'), ('g', '{bench / 'none.onnx'}')]"
    assert script("prepare_instance.sh", "v1", "bench", missing, files[1]).returncode == 1
    assert script("run_instance.sh", "v1", "bench", *files, results, 30).returncode == 0
    lines = results.read_text().splitlines()
    assert [line for line in lines if " " in line] == [
        "X_f real [4]",
        "Y_f real [1,3]",
        "X_g real [4]",
        "Y_g real [1,3]",
    ]
    assert (lines[0], len(lines)) == ("sat", 1 + 4 + 2 * (4 + 3))


def test_the_limit_holds_while_files_are_read(bench: Path, results: Path) -> None:
    """Hundreds of thousands of lists take longer to read than the tenth of a second that there is."""
    huge = bench / "huge.vnnlib"
    cases = " ".join(f"(and (<= X_0 {i}) (>= X_0 (+ {i} 0 0 0 0)))" for i in range(60_000))
    huge.write_text("(declare-const X_0 Real)\n(declare-const Y_0 Real)\n" + f"(assert (or {cases}))\n" * 5)
    command = [sys.executable, "-m", "lingraft", "verify", "--onnx", bench / "net.onnx", "--vnnlib", huge]
    ended = subprocess.run([*command, "--timeout", "0.1"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (12, "timeout\n")
