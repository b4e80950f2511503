"""Instances in worker processes: one that dies costs a retry, one that hangs is a timeout."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from lingraft import export_onnx
from lingraft.formats.vnnlib_write import write_vnnlib
from lingraft.pool.pool import Pool
from lingraft.pool.processes import Processes
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.instance_work import DecideInstances

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A network and two properties that hold, p0 and p1."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3)).eval()
    export_onnx(model, tmp_path / "net.onnx", input_shape=(4,))
    x = torch.rand(1, 4)
    for number in range(2):
        write_vnnlib(
            tmp_path / f"p{number}.vnnlib", (x - 0.001).numpy(), (x + 0.001).numpy(), int(model(x).argmax()), 3
        )
    return tmp_path


def test_reading_ends_at_the_limit_in_this_process_too(bench: Path) -> None:
    work = DecideInstances(Limits())
    work.prepare(1e9)
    question = {"": bench / "net.onnx"}, bench / "p0.vnnlib"
    late = work.answer(question, 1e-4)
    assert (late.word, late.stage) == ("timeout", "reading")
    assert work.answer(question, 60.0).word == "unsat"


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_process_that_dies_costs_its_instance_a_retry(bench: Path, deaths: int) -> None:
    """Instance 1 finds its process killed, once or twice; the others have their answers."""
    killed: list[int] = []
    with Pool(Processes(DecideInstances(Limits()), 1, 1e9)) as pool:

        def ask(number: int) -> tuple[dict[str, Path], Path]:
            if number == 1 and len(killed) < deaths:
                process = pool.workers[0].process  # type: ignore[attr-defined]
                killed.append(process.pid)
                process.kill()
                process.wait()
            return {"": bench / "net.onnx"}, bench / f"p{number}.vnnlib"

        for number in range(2):
            pool.add(number, partial(ask, number), 30.0)
        found = dict(pool.answers())
    assert found[0].word == "unsat"
    assert len(set(killed)) == deaths
    if deaths == 1:
        assert found[1].word == "unsat"
    else:
        assert (found[1].word, found[1].reason) == ("error", "its worker ended with code -9, 2 times")


def test_a_process_that_hangs_is_a_timeout(bench: Path) -> None:
    with Pool(Processes(DecideInstances(Limits()), 1, 1e9)) as pool:

        def ask() -> tuple[dict[str, Path], Path]:
            os.kill(pool.workers[0].process.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
            return {"": bench / "net.onnx"}, bench / "p0.vnnlib"

        pool.add(0, ask, 0.5)
        pool.add(1, lambda: ({"": bench / "net.onnx"}, bench / "p0.vnnlib"), 30.0)
        found = dict(pool.answers())
    assert (found[0].word, found[0].reason) == ("timeout", "time")
    assert 0.5 <= found[0].seconds < 30
    assert found[1].word == "unsat"
