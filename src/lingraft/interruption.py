"""A time limit for work that does not look at the clock, such as reading a file."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Seconds until another try where an import is under way: half a module would be of no use to anybody later.
AGAIN = 0.05


class Interrupted(BaseException):
    """The time is over. No Exception: what catches these on the way must not take it for an error of its own."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise Interrupted in what is done within, after so many seconds of the clock.

    Only in the main thread of a process, of a system that has timers, and only if nobody else uses the timer.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable or signal.getitimer(signal.ITIMER_REAL)[0] or not 0 < seconds < threading.TIMEOUT_MAX:
        yield
        return

    left = False

    def over(number: int, frame: FrameType | None) -> None:
        if not left and not _is_importing(frame):
            raise Interrupted

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        left = True  # first: raised from here on, it would leave the timer running
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported by what is done in a frame."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
