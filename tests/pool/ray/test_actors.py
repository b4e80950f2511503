"""Workers on Ray: the verdicts of a single process, also when workers are killed."""

import os
import signal
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import lingraft
from lingraft.pool import pool as pool_module
from lingraft.pool.images import verify_each
from lingraft.pool.place import Place
from lingraft.pool.pool import Pool
from lingraft.pool.problems import VerifyProblems
from lingraft.pool.ray.actors import Actor, RayWorkers
from lingraft.runs.summary import summarize
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Problem, Result

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


def actors() -> list[int]:
    """Processes of our actors, which Ray names so; those of another Ray on this machine are not below this process."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if f"ray::{Actor.__name__}".encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and ours(parents[pid]))

    return [pid for pid in found if ours(pid)]


def test_a_killed_worker_costs_nothing_but_time(ray: ModuleType, request_: Request, expected: list[Result]) -> None:
    found: dict[int, Result] = {}
    killed: list[int] = []
    for i, result in verify_each(request_, Limits(600), Place(2, "auto")):
        found[i] = result
        if result.verdict != "misclassified" and not killed:
            killed = actors()[:1]
            os.kill(killed[0], signal.SIGKILL)
    assert killed
    ours, theirs = (summarize(results, 600) for results in (found.values(), expected))
    assert [found[i].verdict for i in range(len(expected))] == [result.verdict for result in expected]
    assert (ours.verified, ours.falsified, ours.misclassified) == (
        theirs.verified,
        theirs.falsified,
        theirs.misclassified,
    )
    assert ours.unr == pytest.approx(theirs.unr)
    assert min(ours.verified, ours.falsified) > 0
    assert not any(r.error for r in found.values())


class Bomb:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (9,)


def test_one_retry_and_no_more(ray: ModuleType, request_: Request, expected: list[Result]) -> None:
    """Problem `special` ends every process that gets it; the others have their verdicts."""
    open_ = [i for i, result in enumerate(expected) if result.verdict != "misclassified"][:3]
    special = open_[1]

    def ask(i: int) -> tuple[Problem, int]:
        return (Bomb() if i == special else request_.problem(i)), 0  # type: ignore[return-value]

    with Pool(RayWorkers(ray, VerifyProblems(request_.network, Limits()), 1, 1e9)) as pool:
        for i in open_:
            pool.add(i, partial(ask, i), 600)
        found = dict(pool.answers())
    assert set(found) == set(open_)
    for i in open_:
        if i == special:
            assert (found[i].verdict, found[i].reason) == ("unknown", "crashed")
            assert "died" in str(found[i].error)
        else:
            assert found[i].verdict == expected[i].verdict


def test_another_version_on_a_node_is_an_error(
    ray: ModuleType, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingraft.pool.ray.actors.__version__", "0.0.other")
    with pytest.raises(lingraft.LingraftError, match=r"0\.0\.other"):
        list(verify_each(request_, Limits(600), Place(1, "auto")))


def test_a_node_that_cannot_prepare_is_an_error(
    ray: ModuleType, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "FAILED_STARTS", 1)
    workers = RayWorkers(ray, VerifyProblems(request_.network, Limits()), 1, 1e9)
    workers.packed = ray.put(b"no work")
    with Pool(workers) as pool:
        pool.add(0, lambda: pytest.fail("nothing to ask"))
        with pytest.raises(lingraft.LingraftError, match=r"do not start.*Unpickling.*`ray status`"):
            list(pool.answers())
