"""What guides a search is its own work: neither sleep nor the work of others counts."""

import sys
import time

import pytest
import random_networks as nets
import torch

from lingraft.solver.ascent import improve
from lingraft.solver.clock import worked
from lingraft.solver.dual import Dual, root_domains

SLEEP = 0.2

CPU = torch.device("cpu")

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="threads count in steps of 15 ms there")


@on_posix
def test_a_cpu_counts_work_only() -> None:
    before = worked(CPU)
    time.sleep(SLEEP)
    after = worked(CPU)
    assert after - before < SLEEP / 2
    end = time.thread_time() + SLEEP
    while time.thread_time() < end:
        pass
    assert SLEEP <= worked(CPU) - after < 2 * SLEEP


def test_a_device_that_works_by_itself_counts_all_time() -> None:
    before = worked(torch.device("cuda"))
    time.sleep(SLEEP)
    assert worked(torch.device("cuda")) - before >= SLEEP


@on_posix
def test_steps_cost_what_they_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step during which others have the core for long is not a dear one."""
    *_, collapsed, _, _ = nets.partly_negative(1, "relu", 0.1)
    dual, forward = Dual(collapsed, torch.float32), Dual.forward
    seconds: list[float] = []

    def slow(*arguments: object) -> object:
        time.sleep(SLEEP)
        return forward(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Dual, "forward", slow)
    improve(dual, root_domains(collapsed, dual.dtype), 2, clock=lambda _, spent: seconds.append(spent))
    assert len(seconds) == 2
    assert max(seconds) < SLEEP / 2
