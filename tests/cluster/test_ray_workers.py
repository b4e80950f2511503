"""Workers on Ray: the verdicts of a single process, also when workers are killed."""

import os
import signal
from pathlib import Path
from types import ModuleType

import pytest

import lingraft
from lingraft.cluster.ray_workers import Actor, RayStaff
from lingraft.verification.answerer import setup_of
from lingraft.verification.crew import Crew
from lingraft.verification.request import Limits, Request
from lingraft.verification.verifier import Problem, Result
from lingraft.verification.verify import verify_each

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


def actors() -> list[int]:
    """Ids of the living processes in which our actors are: Ray names them so."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"ray::{Actor.__name__}".encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_killed_worker_costs_nothing_but_time(ray: ModuleType, request_: Request, expected: list[str]) -> None:
    found: dict[int, Result] = {}
    killed: list[int] = []
    for result in verify_each(request_, Limits(60, workers=2, ray="auto")):
        found[result.index] = result
        if result.verdict != "misclassified" and not killed:
            killed = actors()[:1]
            os.kill(killed[0], signal.SIGKILL)
    assert killed
    assert [found[i].verdict for i in range(len(expected))] == expected
    assert {"verified", "falsified"} <= set(expected)
    assert not any(r.error for r in found.values())


class Bomb:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (9,)


@pytest.mark.parametrize("bombs", [1, 2])
def test_one_retry_and_no_more(ray: ModuleType, request_: Request, expected: list[str], bombs: int) -> None:
    """Problem `special` ends the process that gets it, once or twice."""
    open_ = [i for i, verdict in enumerate(expected) if verdict != "misclassified"][:3]
    special, thrown = open_[1], 0

    def ask(i: int) -> tuple[Problem, int]:
        nonlocal thrown
        if i == special and thrown < bombs:
            thrown += 1
            return Bomb(), 0  # type: ignore[return-value]
        return request_.problem(i), 0

    staff = RayStaff(ray, setup_of(request_.network, Limits()), 1, 1e9, gpu=False)
    found = dict(Crew(staff, 60).run(open_, ask))
    assert set(found) == set(open_)
    for i in open_:
        if i == special and bombs == 2:
            assert (found[i].verdict, found[i].reason) == ("unknown", "crashed")
            assert "died" in str(found[i].error)
        else:
            assert found[i].verdict == expected[i]


def test_another_version_on_a_node_is_an_error(
    ray: ModuleType, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingraft, "__version__", "0.0.other")
    with pytest.raises(lingraft.LingraftError, match=r"0\.0\.other"):
        list(verify_each(request_, Limits(60, workers=1, ray="auto")))


def test_a_node_that_cannot_prepare_is_an_error(ray: ModuleType) -> None:
    staff = RayStaff(ray, b"no network", 1, 1e9, gpu=False)
    with pytest.raises(lingraft.LingraftError, match=r"do not start.*Unpickling.*`ray status`"):
        list(Crew(staff, 60).run([0], lambda i: pytest.fail("nothing to ask")))
