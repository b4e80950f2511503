"""A time limit that holds also while something is under way that does not look at the clock, such as reading a file."""

import os
import sys
import threading
import time
from collections.abc import Callable

from lingraft.exit_codes import EXIT_CODES

#: Seconds, and share of the limit, that an answer may be late before the process ends without it.
GRACE, SHARE = 0.5, 0.02

#: Seconds from the start of a process to its command that are believed: more means a clock that cannot be trusted.
LONGEST_START = 60.0


def process_began() -> float:
    """When this process began, on the clock of time.monotonic(): loading Python and lingraft is part of its time.

    Now, where the system does not say.
    """
    now = time.monotonic()
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])  # the 22nd field; the second is in parentheses
        ago = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - ago if 0 <= ago <= LONGEST_START else now


def leave(code: int) -> None:
    """End a process that is the command's own at once: clearing up after torch takes a second of its time.

    Does nothing in another program's process. Whatever was written must be closed.
    """
    if sys.stdout is sys.__stdout__ and sys.stdout is not None and sys.stderr is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Deadline:
    """While it is entered, this process ends with what `timeout` returns and its exit code shortly after the limit.

    Only where the process is the command's own, which writes to its own standard output.
    """

    def __init__(self, started: float, seconds: float, timeout: Callable[[], str]):
        # a limit that is none, such as NaN, is refused by whoever gets it
        late = started + seconds * (1 + SHARE) + GRACE - time.monotonic() if seconds > 0 else threading.TIMEOUT_MAX
        self._timeout, self._lock, self._over = timeout, threading.Lock(), False
        self._timer = threading.Timer(min(max(late, 0.0), threading.TIMEOUT_MAX), self._end)
        self._timer.daemon = True

    def __enter__(self) -> "Deadline":
        if sys.stdout is sys.__stdout__:
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._over = True
        self._timer.cancel()

    def _end(self) -> None:
        with self._lock:
            if not self._over:
                sys.stdout.write(f"{self._timeout()}\n")
                sys.stdout.flush()
                os._exit(EXIT_CODES["timeout"])
