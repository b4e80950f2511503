"""What does not look at the clock is interrupted in time, and the timer is left as it was."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from lingraft.interruption import Interrupted, interrupted_after

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a system without timers")


def _endless() -> None:
    while True:
        try:
            sum(range(1000))
        except Exception:
            continue


def _endless_after(first: Callable[[str], object], argument: str) -> None:
    first(argument)
    _endless()


def test_work_without_end_is_interrupted() -> None:
    before, started = signal.getsignal(signal.SIGALRM), time.monotonic()
    with pytest.raises(Interrupted), interrupted_after(0.05):
        _endless()
    assert time.monotonic() - started < 10
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_an_import_is_finished_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.3)\nDONE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Interrupted), interrupted_after(0.05):
        _endless_after(import_module, "slow_to_import")
    assert sys.modules["slow_to_import"].DONE


def test_a_timer_that_goes_off_at_the_end_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before, set_timer = signal.getsignal(signal.SIGALRM), signal.setitimer

    def late(which: int, seconds: float, again: float = 0.0) -> None:
        if not seconds:
            signal.raise_signal(signal.SIGALRM)
        set_timer(which, seconds, again)

    monkeypatch.setattr(signal, "setitimer", late)
    with interrupted_after(100.0):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_what_is_quick_is_not() -> None:
    with interrupted_after(100.0):
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_other_threads_and_nested_limits_are_left_alone() -> None:
    done = []

    def work() -> None:
        with interrupted_after(1e-3):
            done.append(sum(range(100_000)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
    with pytest.raises(Interrupted), interrupted_after(0.05), interrupted_after(100.0):
        _endless()
