"""The way to a Ray cluster, or to a Ray of our own on this machine, without its dashboard, statistics and chatter.

Ray trusts everyone who can reach it: who can connect to a cluster can run code on it, as the user who started it.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from lingraft.errors import LingraftError

#: Ray as it finds one itself: that of RAY_ADDRESS, one that was started on this machine, or a new one on it.
AUTO = "auto"

#: A new Ray on this machine, reachable from this machine alone.
LOCAL = "local"

#: How to connect: Ray prints nothing of what workers or it itself have to say.
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}

#: Tries to start a Ray of our own: it gives up after 30 seconds, which a busy machine may need.
STARTS = 3

#: Bytes of shared memory for the objects of a Ray of our own: the network, problems and results.
OBJECT_STORE = 512 * 1024**2


def import_ray() -> ModuleType:
    """Ray, told to be quiet."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # the death of a worker is our business: Ray would print it on standard output, where only our figures belong
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    import ray  # an optional dependency, and to be imported after these are set

    return ray


@contextmanager
def connected(address: str, workers: int | None) -> Iterator[ModuleType]:
    """Ray, connected to `address`; a Ray of our own has `workers` CPUs (default: all cores) and ends with the context.

    If this process is connected already, by whoever called us, that connection is used and left open.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    _connect(ray, address, workers)
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: ModuleType, address: str, workers: int | None) -> None:
    try:
        if address == LOCAL:
            _start(ray, workers)
            return
        try:
            ray.init(address=address, **QUIET)
        except ConnectionError:
            if address != AUTO or "RAY_ADDRESS" in os.environ:
                raise
            _start(ray, workers)  # there is none on this machine
    except Exception as error:  # Ray has no type of its own for this: it may be an Exception and no more
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise LingraftError(
            f"cannot connect to Ray at {address!r}: {lines[0]} Check the address (`ray status` on a node shows whether"
            " the cluster is up), or use --ray local for a Ray on this machine."
        ) from error


def _start(ray: ModuleType, workers: int | None) -> None:
    """A Ray of our own on this machine, for nobody else."""
    # Ray's own default is 15, and limits of time are in seconds of the clock, whatever else the machine does
    os.environ.setdefault("RAY_worker_niceness", "0")
    own = {"num_cpus": workers, "object_store_memory": OBJECT_STORE, "_node_ip_address": "127.0.0.1"}
    for left in reversed(range(STARTS)):
        try:
            ray.init(address="local", include_dashboard=False, **own, **QUIET)
            return
        except Exception:
            if not left:
                raise
            ray.shutdown()
