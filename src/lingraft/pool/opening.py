"""A pool at a place: in this process, in several on this machine, or on a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lingraft.pool.here import Here
from lingraft.pool.place import Place
from lingraft.pool.pool import Pool
from lingraft.pool.processes import POSSIBLE, Processes
from lingraft.pool.ray.actors import RayWorkers
from lingraft.pool.ray.connection import connected
from lingraft.pool.work import Work
from lingraft.solver.budget import usable_cores, usable_memory


@contextmanager
def open_pool(work: Work[Any, Any], place: Place, memory: float | None = None) -> Iterator[Pool | Here]:
    """A pool for one kind of work, whose workers end with the context.

    They share `memory` bytes (default: a share of what is free); on Ray that is the memory of each node.
    """
    if place.ray is not None:
        with (
            connected(place.ray, place.workers) as ray,
            Pool(RayWorkers(ray, work, place.workers, memory)) as pool,
        ):
            yield pool
    elif place.workers or (place.workers is None and POSSIBLE):
        with Pool(Processes(work, place.workers or usable_cores(), usable_memory(memory))) as pool:
            yield pool
    else:
        yield Here(work, usable_memory(memory))
