"""The clock that guides a search: seconds of work, whatever else its machine does meanwhile.

What is worth doing depends on what it costs, and time for which another program had the core is no cost: a search that
counted it would take a step for dear because of its neighbours. Limits of time are those of the wall (`budget.py`).

Seconds are those of the calling thread. Where torch has several, the caller does a share of each operation as large as
theirs and then waits for them, most of the time actively, so that its own seconds are about those of the operation. A
GPU works while its caller need not; there, and on Windows, whose threads count in steps of 15 ms, they are of the wall.
"""

import os
import time

import torch

#: Whether the seconds of a thread are counted finely enough for one step of a search.
FINE = os.name == "posix"


def worked(device: torch.device) -> float:
    """Seconds, of which differences count: what this thread has worked, or how long a device that is no CPU has."""
    return time.thread_time() if FINE and device.type == "cpu" else time.monotonic()
