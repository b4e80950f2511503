"""What a verification may spend: time and memory, checked where much of either is about to be used."""

import os
import time

GIB = 1024**3

#: What a system is taken to have free that does not say.
NOT_KNOWN = 4.0 * GIB

#: Share of the free memory that is used unless a limit is given.
MEMORY_SHARE = 0.7


class Exhausted(Exception):
    """There is no going on with one image; `reason` is "time", "memory" or "numerical"."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class Budget:
    """Seconds from now, and bytes that large tensors may take."""

    def __init__(self, seconds: float = float("inf"), memory: float = float("inf")):
        self.deadline = time.monotonic() + seconds
        self.memory = memory

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.monotonic()

    def part(self, seconds: float) -> "Budget":
        """A budget of at most so many of the seconds that are left."""
        return Budget(min(seconds, self.left), self.memory)

    def check_time(self) -> None:
        """Stop if the time is over."""
        if self.left <= 0:
            raise Exhausted("time")

    def allow(self, size: float) -> None:
        """Stop if `size` bytes more than fits are about to be used."""
        if size > self.memory:
            raise Exhausted("memory")


#: For work that nobody waits for.
UNLIMITED = Budget()


def usable_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_memory(limit: float | None) -> float:
    """Bytes of memory that may be used: the limit, or a share of what is free."""
    return MEMORY_SHARE * free_memory() if limit is None else limit


def free_memory() -> float:
    """Bytes of memory that are available now, also where a container allows less than the machine has."""
    if not hasattr(os, "sysconf"):  # Windows
        return NOT_KNOWN
    available = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = [line.split()[1] for line in file if line.startswith("MemAvailable")]
        available = int(found[0]) * 1024.0 if found else available
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limit = file.read().strip()
        available = min(available, float(limit)) if limit != "max" else available
    except OSError:
        pass
    return available
