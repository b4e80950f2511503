"""Problems that are divided among workers: idle ones get parts, and what becomes of them."""

import copy
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import random_networks as nets

from lingraft.pool import pool as pool_module
from lingraft.pool.pool import Pool
from lingraft.pool.problems import VerifyProblems
from lingraft.pool.processes import Processes
from lingraft.pool.work import Divided
from lingraft.pool.worker import Task, Worker, Workers
from lingraft.solver.request import Limits
from lingraft.solver.verifier import Result


def results(*verdicts: str) -> list[Result]:
    return [Result(v, "branch", "time" if v == "unknown" else None, domains=2, memory=5.0) for v in verdicts]


@pytest.mark.slow
def test_idle_workers_get_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One problem and two processes: the pool has it divided, and the verdict is that of the whole."""
    monkeypatch.setattr(pool_module, "DIVIDE_AFTER", 0.0)
    request = nets.branchy(1, 0.05)
    heard = []

    class Listening(Pool):
        def _settle(self, task: Task, answer: Result | Divided) -> Iterator[tuple[int, Result]]:
            heard.append(answer)
            return super()._settle(task, answer)

    with Listening(Processes(VerifyProblems(request.network, Limits()), 2, 2e9)) as pool:
        pool.add(7, lambda: (request.problem(0), 7), 600.0)
        ((number, result),) = pool.answers()
    assert (number, result.verdict, result.stage) == (7, "verified", "branch")
    assert isinstance(heard[0], Divided)
    assert len(heard[0].parts) == 2
    assert result.domains == sum((h.result if isinstance(h, Divided) else h).domains for h in heard)


class Scripted(Worker):
    """Answers what the script says, as soon as it is asked: a result, a division, None to die, b"" to be late."""

    def __init__(self, script: list[Any]):
        super().__init__()
        self.script, self.said = script, b"ready"

    def send(self, question: bytes, common: Any, seconds: float) -> None:
        self.said = self.script.pop(0)

    def divide(self, parts: int) -> None: ...

    def receive(self) -> bytes | None:
        if self.said == b"":
            self.deadline = 0.0
        return self.said if self.said in (None, b"", b"ready") else pickle.dumps(self.said)

    def continue_start(self, message: bytes) -> None:
        self.idle = True

    def end(self) -> str:
        return "left"


class Ensemble(Workers[Scripted]):
    what_to_do = ""
    size = 1

    def __init__(self, *script: Any):
        super().__init__(VerifyProblems(nets.branchy(1, 0.1).network, Limits()))
        self.script = list(script)

    def start(self) -> Scripted:
        return Scripted(self.script)

    def share(self, common: bytes) -> bytes:
        return common

    def wait(self, workers: Sequence[Scripted], seconds: float | None) -> Sequence[Scripted]:
        return workers


def division(parts: int) -> Divided:
    return Divided(Result("unknown", "branch", "stopped", seconds=1.0, domains=10), b"common", [b"part"] * parts)


VERIFIED, UNKNOWN, FALSIFIED = results("verified", "unknown", "falsified")


@pytest.mark.parametrize(
    ("script", "verdict", "reason", "domains"),
    [
        ([division(2), VERIFIED, VERIFIED], "verified", None, 14),
        ([division(2), VERIFIED, division(3), VERIFIED, VERIFIED, VERIFIED], "verified", None, 28),
        ([division(2), None, VERIFIED, VERIFIED], "verified", None, 14),
        ([division(2), None, VERIFIED, None, VERIFIED], "verified", None, 14),
        ([division(2), None, None, VERIFIED], "unknown", "crashed", 12),
        ([division(2), b"", VERIFIED], "unknown", "time", 12),
        ([division(3), UNKNOWN, FALSIFIED], "falsified", None, 14),
    ],
)
def test_what_becomes_of_parts(script: list[Any], verdict: str, reason: str | None, domains: int) -> None:
    """Retries, late answers and further divisions of parts; what is left of a falsified problem is dropped."""
    workers = Ensemble(*copy.deepcopy(script))
    with Pool(workers) as pool:
        pool.add(0, lambda: "whatever the script answers", 60.0)
        ((_, result),) = pool.answers()
    assert (result.verdict, result.reason, result.domains) == (verdict, reason, domains)
    assert not pool.left
    assert not pool.divisions
    assert not workers.script
