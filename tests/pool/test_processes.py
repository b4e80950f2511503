"""Worker processes: they give the same verdicts, survive their own deaths, and never outlive their parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft.data import load
from lingraft.pool import processes
from lingraft.pool.images import verify_each
from lingraft.pool.place import HERE, Place
from lingraft.pool.pool import Pool
from lingraft.pool.problems import VerifyProblems
from lingraft.pool.processes import Processes
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Problem, Result

EPS = 0.08

#: A constraint that holds by far on a random network, but that no bound shows within minutes.
HARD = """
import sys, torch, lingraft
from torch import nn
torch.manual_seed(1)
sizes = [24, 120, 120, 60, 2]
model = nn.Sequential(*[layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())][:-1]).eval()
constraints = torch.tensor([[1.0, -1.0]]), torch.tensor([0.5])
print("begin", flush=True)
found = lingraft.verify(model, torch.full((2, 24), 0.5), eps=0.5, constraints=constraints, timeout=120, workers=2)
print([(r.verdict, r.reason) for r in found])
"""


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    data = load("digits", "test").take(24)
    return data.pixels(), data.labels


@pytest.fixture(scope="module")
def request_(digits_net: nn.Module, digits: tuple[Tensor, Tensor]) -> Request:
    return Request(digits_net, *digits, eps=EPS)


@pytest.fixture(scope="module")
def expected(request_: Request) -> list[str]:
    found = {i: result.verdict for i, result in verify_each(request_, Limits(60), HERE)}
    return [found[i] for i in range(len(request_))]


def in_one_process(
    request: Request, timeout: float, numbers: list[int], ask: Callable[[int], tuple[Problem, int]]
) -> dict[int, Result]:
    with Pool(Processes(VerifyProblems(request.network, Limits()), 1, 1e9)) as pool:
        for i in numbers:
            pool.add(i, partial(ask, i), timeout)
        return dict(pool.answers())


def workers_of(parent: int) -> list[int]:
    """Ids of the living worker processes of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, ppid = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if (
                int(ppid) == parent
                and state != "Z"
                and b"lingraft.pool.worker_process" in (folder / "cmdline").read_bytes()
            ):
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true within `seconds` seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc"),
]


def test_two_processes_give_what_this_one_gives(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], expected: list[str]
) -> None:
    found = lingraft.verify(digits_net, *digits, eps=EPS, timeout=60, workers=2)
    assert [r.verdict for r in found] == expected
    assert [r.index for r in found] == list(range(len(expected)))
    assert {"verified", "falsified"} <= set(expected)
    assert all(20 < r.memory < 4000 for r in found if r.verdict != "misclassified")
    assert workers_of(os.getpid()) == []


def test_a_killed_worker_costs_nothing_but_time(request_: Request, expected: list[str]) -> None:
    found: dict[int, Result] = {}
    killed: set[int] = set()
    for i, result in verify_each(request_, Limits(60), Place(2)):
        found[i] = result
        if result.verdict != "misclassified" and not killed:
            killed.update(workers_of(os.getpid()))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
    assert killed
    assert [found[i].verdict for i in range(len(expected))] == expected


class Bomb:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (9,)


@pytest.mark.parametrize("bombs", [1, 2])
def test_one_retry_and_no_more(request_: Request, expected: list[str], bombs: int) -> None:
    """Problem `special` ends the process that gets it, once or twice."""
    open_ = [i for i, verdict in enumerate(expected) if verdict != "misclassified"][:4]
    special, thrown = open_[1], 0

    def ask(i: int) -> tuple[Problem, int]:
        nonlocal thrown
        if i == special and thrown < bombs:
            thrown += 1
            return Bomb(), 0  # type: ignore[return-value]
        return request_.problem(i), 0

    found = in_one_process(request_, 60, open_, ask)
    assert set(found) == set(open_)
    for i in open_:
        if i == special and bombs == 2:
            assert (found[i].verdict, found[i].reason) == ("unknown", "crashed")
            assert "code 9" in str(found[i].error)
        else:
            assert found[i].verdict == expected[i]


def test_what_does_not_fit_ends_as_memory_and_the_others_go_on(
    digits_net: nn.Module, digits: tuple[Tensor, Tensor], expected: list[str]
) -> None:
    """The budget is that of both processes; a thousand bytes are enough for nothing but attacks."""
    found = lingraft.verify(digits_net, *digits, eps=EPS, timeout=60, workers=2, memory=2000)
    reasons = {(r.verdict, r.reason) for r in found}
    assert ("unknown", "memory") in reasons
    assert ("falsified", None) in reasons
    for result, verdict in zip(found, expected, strict=True):
        assert result.verdict == verdict or result.reason == "memory"


def test_a_worker_that_hangs_is_ended_in_time(request_: Request, expected: list[str]) -> None:
    open_ = [i for i, verdict in enumerate(expected) if verdict != "misclassified"][:3]
    stopped: list[int] = []

    def ask(i: int) -> tuple[Problem, int]:
        if i == open_[1]:
            stopped.extend(workers_of(os.getpid()))
            os.kill(stopped[0], signal.SIGSTOP)
        return request_.problem(i), 0

    found = in_one_process(request_, 2.0, open_, ask)
    assert (found[open_[1]].verdict, found[open_[1]].reason) == ("unknown", "time")
    assert 2.0 <= found[open_[1]].seconds < 60
    assert not alive(stopped[0])
    assert found[open_[2]].verdict == expected[open_[2]]


def test_an_image_whose_worker_is_ended_has_the_stage_it_was_in() -> None:
    torch.manual_seed(1)
    sizes = [24, 120, 120, 60, 2]
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    constraints = torch.tensor([[1.0, -1.0]]), torch.tensor([0.5])
    request = Request(
        nn.Sequential(*layers[:-1]).eval(), torch.full((1, 24), 0.5), None, eps=0.5, constraints=constraints
    )

    def ask(i: int) -> tuple[Problem, int]:
        stop = partial(os.kill, workers_of(os.getpid())[0], signal.SIGSTOP)
        threading.Timer(1.0, stop).start()
        return request.problem(i), 0

    found = in_one_process(request, 1.5, [0], ask)[0]
    assert (found.verdict, found.reason) == ("unknown", "time")
    assert found.stage in ("attack", "intervals", "crown", "alpha", "branch")


def test_processes_that_do_not_start_are_an_error(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.sys, "executable", "/bin/false")
    with pytest.raises(lingraft.LingraftError, match="do not start"):
        list(verify_each(request_, Limits(60), Place(2)))
    monkeypatch.setattr(processes.sys, "executable", "/no/such/python")
    with pytest.raises(lingraft.LingraftError, match="cannot start a worker process"):
        list(verify_each(request_, Limits(60), Place(2)))


def test_stopping_early_ends_the_workers(request_: Request) -> None:
    results: Iterator[tuple[int, Result]] = verify_each(request_, Limits(60), Place(2))
    for _, result in results:
        if result.verdict != "misclassified":
            break
    assert workers_of(os.getpid())
    results.close()  # type: ignore[attr-defined]
    assert workers_of(os.getpid()) == []


def test_allocations_beyond_the_ceiling_fail_and_are_memory() -> None:
    """In a process of its own, since the ceiling stays."""
    script = """
import torch
from lingraft.process_memory import is_out_of_memory, limit_memory
limit_memory(200 * 2**20)
torch.ones(10 * 2**20)
try:
    torch.ones(200 * 2**20)
except Exception as error:
    print("memory" if is_out_of_memory(error) else repr(error))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "memory"


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HARD.replace("timeout=120", "timeout=1"))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120
    )
    assert done.stdout.splitlines() == ["begin", "[('unknown', 'time'), ('unknown', 'time')]"]
    assert done.stderr == ""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, end: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(HARD)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a process in the background of a shell ignores Ctrl-C, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begin\n"
        assert until(lambda: len(workers_of(parent.pid)) == 2, 60)
        time.sleep(1.5)
        pids = workers_of(parent.pid)
        parent.send_signal(end)
        out, error = parent.communicate(timeout=20)
        assert out == ""
        assert ("KeyboardInterrupt" in error) == (end == signal.SIGINT)
        assert until(lambda: not any(map(alive, pids)), 10)
    finally:
        parent.kill()
        parent.wait()


RULE = """
from lingraft.solver.branching import register

@register("first of all")
def first(dual, domains, evaluation):
    return dual.splittable(domains).int().argmax(0)
"""


def test_a_branching_rule_of_a_module_reaches_the_workers(tmp_path: Path) -> None:
    """And one of the script itself is refused by them, as they do not run the script again."""
    (tmp_path / "my_rule.py").write_text(RULE)
    script = """
import torch, lingraft
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
images = torch.rand(3, 3)
found = lingraft.verify(model, images, model(images).argmax(1), eps=0.001, workers=2, branching="first of all")
print(sorted({result.verdict for result in found}))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    run = partial(subprocess.run, capture_output=True, text=True, env=environment, timeout=300)
    done = run([sys.executable, "-c", "import my_rule" + script])
    assert "'verified'" in done.stdout, done.stderr
    assert "unknown" not in done.stdout
    done = run([sys.executable, "-c", RULE + script])
    assert "does not know the branching rule 'first of all'" in done.stdout + done.stderr
