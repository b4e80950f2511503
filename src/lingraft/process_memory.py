"""Memory of this process: its peak, and a ceiling above which allocations fail instead of the machine running out."""

import sys
from contextlib import suppress

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MIB = 1024**2


def forget_peak() -> None:
    """Start measuring the peak anew, where the system can (Linux)."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def peak_memory() -> float:
    """Most resident memory in MiB since `forget_peak`, or since the process began; 0 where neither is known."""
    found = _status("VmHWM")
    if found is not None:
        return found / MIB
    if resource is None:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (MIB if sys.platform == "darwin" else 1024)


def limit_memory(more: float) -> None:
    """Let allocations fail that take the data of this process more than `more` bytes above what it has now (Linux)."""
    now = _status("VmData")
    if now is not None and resource is not None and more != float("inf"):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = int(now + more)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


def die_first() -> None:
    """If the machine does run out of memory, the system should end this process rather than others (Linux)."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed; torch and its libraries say so in a RuntimeError, each in words of its own."""
    said = ("allocate memory", "out of memory", "could not create a primitive")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in said)
    )


def _status(name: str) -> float | None:
    """Bytes that a line of /proc/self/status gives; None where there is none."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            found = [line.split()[1] for line in file if line.startswith(f"{name}:")]
    except OSError:
        return None
    return float(found[0]) * 1024 if found else None
