"""Progress: a bar on a terminal, lines in a log, nothing for what is short."""

import io
import time
from itertools import pairwise

import pytest
from rich.console import Console

from lingraft import progress as module
from lingraft.progress import in_words, progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal gets to see."""
    text = io.StringIO()
    monkeypatch.setattr(module, "console", Console(file=text, force_terminal=True, width=120, color_system=None))
    return text


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a log gets."""
    text = io.StringIO()
    monkeypatch.setattr(module, "console", Console(file=text, force_terminal=False, width=120))
    return text


def test_what_is_short_shows_nothing(terminal: io.StringIO):
    with progress("verifying", 3) as advance:
        advance(2, "two")
    assert terminal.getvalue() == ""


def test_a_bar_appears_while_the_first_step_lasts_and_is_gone_at_the_end(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    with progress("verifying", 3, done=1):
        for _ in range(200):
            if "verifying" in terminal.getvalue():
                break
            time.sleep(0.02)
        assert "1/3" in terminal.getvalue()
    shown = len(terminal.getvalue())
    time.sleep(0.2)
    assert len(terminal.getvalue()) == shown
    assert terminal.getvalue().endswith("\x1b[2K"), "erased"


def test_a_bar_that_is_not_wanted(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with progress("verifying", 3, shown=False) as advance:
        advance(1, "one")
        time.sleep(0.1)
    assert terminal.getvalue() == ""


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_log_has_a_line_now_and_then_with_the_time_left(log: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    with progress("verifying", 1100, done=100) as advance:
        for second in range(1, 501):
            clock.now = float(second)
            advance(1, f"VA so far {second}")
    lines = log.getvalue().splitlines()
    assert lines[0] == "verifying: 110 of 1,100 in 10 s, about 16 min left; VA so far 10"
    times = [int(line.split("VA so far ")[1]) for line in lines]
    gaps = [after - before for before, after in pairwise(times)]
    assert times[:10] == list(range(10, 110, 10)), "every ten seconds"
    assert all(10 <= gap <= 0.1 * after + 1 for gap, after in zip(gaps[10:], times[11:], strict=True)), "then rarer"
    assert 20 <= len(lines) <= 35


def test_a_day_long_work_says_something_every_ten_minutes(log: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    with progress("verifying", 2000) as advance:
        for minute in range(24 * 60):
            clock.now = 60.0 * minute
            advance(1, str(minute))
    minutes = [int(line.rsplit("; ", 1)[1]) for line in log.getvalue().splitlines()]
    assert max(after - before for before, after in pairwise(minutes)) == 10


def test_times_in_words():
    assert [in_words(s) for s in (4, 59, 60, 3000, 3600 * 3 + 1200)] == ["4 s", "59 s", "1 min", "50 min", "3 h 20 min"]
