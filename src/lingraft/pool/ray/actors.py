"""Workers on the nodes of a Ray cluster: one actor for each CPU, or GPU where the work needs one.

The work is put into Ray's object store once and read from there by every actor.
"""

import pickle
import socket
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch

from lingraft.errors import LingraftError
from lingraft.pool.server import Server
from lingraft.pool.work import Work
from lingraft.pool.worker import Worker, Workers
from lingraft.solver.budget import usable_memory
from lingraft.version import __version__


class Actor:
    """What runs on a node."""

    def __init__(self) -> None:
        self.server: Server | None = None

    def prepare(self, work: bytes, memory: float | None, workers: int, unit: str) -> bytes:
        """Take the work; says who and which version this is.

        `memory` is that of the node (default: a share of what is free), which as many workers share as it has CPUs
        (or another `unit`), but no more than there are in all.
        """
        import ray  # an optional dependency

        here = ray.get_runtime_context().get_node_id()
        units = next((node["Resources"].get(unit, 1) for node in ray.nodes() if node["NodeID"] == here), 1)
        self.server = Server(work, usable_memory(memory) / max(1, min(workers, units)))
        return pickle.dumps((socket.gethostname(), __version__))

    def answer(self, question: bytes, common: bytes | None, seconds: float) -> bytes:
        """The pickled answer to a question, or to a part of one."""
        assert self.server is not None
        torch.set_num_threads(1)  # a setting of the thread, of which an actor has several
        return self.server.answer(question, common, seconds)

    def divide(self, parts: int) -> None:
        """Divide what is being worked on; runs beside `answer`."""
        if self.server is not None:
            self.server.divide(parts)


class RayWorker(Worker):
    """One actor."""

    def __init__(self, ray: ModuleType, actor: Any, *work: Any) -> None:
        super().__init__()
        self.ray, self.actor = ray, actor
        self.future = actor.prepare.remote(*work)
        self.failure = "did not answer in time"

    def send(self, question: bytes, common: Any, seconds: float) -> None:
        self.future = self.actor.answer.remote(question, common, seconds)

    def divide(self, parts: int) -> None:
        self.actor.divide.remote(parts)

    def receive(self) -> bytes | None:
        try:
            return self.ray.get(self.future) if self.ray.wait([self.future], timeout=0)[0] else b""
        except self.ray.exceptions.RayError as error:
            self.failure = f"failed: {_reason(error)}"
            return None

    def continue_start(self, message: bytes) -> None:
        node, version = pickle.loads(message)
        if version != __version__:
            raise LingraftError(
                f"node {node} has lingraft {version}, this machine {__version__}. Install the same version on all."
            )
        self.idle = True

    def end(self) -> str:
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(self.actor)
        return self.failure


class RayWorkers(Workers[RayWorker]):
    """Actors on a cluster: `count`, or as many as it has CPUs (GPUs) at the moment; `memory` is that of each node."""

    what_to_do = "Check `ray status`, and that lingraft is installed on every node."

    def __init__(self, ray: ModuleType, work: Work[Any, Any], count: int | None, memory: float | None):
        super().__init__(work)
        self.ray, self.count, self.memory = ray, count, memory
        self.packed = ray.put(pickle.dumps(work))
        self.unit = "GPU" if work.gpu else "CPU"
        needs = {"num_cpus": 1, "num_gpus": 1 if work.gpu else 0}
        self.actor = ray.remote(max_restarts=0, max_concurrency=2, scheduling_strategy="SPREAD", **needs)(Actor)

    @property
    def size(self) -> int:
        # at least one: it waits until there is a node for it
        return self.count or max(1, int(self.ray.cluster_resources().get(self.unit, 0)))

    def share(self, common: bytes) -> Any:
        return self.ray.put(common)

    def start(self) -> RayWorker:
        return RayWorker(self.ray, self.actor.remote(), self.packed, self.memory, self.size, self.unit)

    def wait(self, workers: Sequence[RayWorker], seconds: float | None) -> list[RayWorker]:
        futures = {worker.future: worker for worker in workers}
        self.ray.wait(list(futures), timeout=seconds)
        ready, _ = self.ray.wait(list(futures), num_returns=len(futures), timeout=0)
        return [futures[future] for future in ready]


def _reason(error: Exception) -> str:
    """The line of Ray's message that says what happened."""
    cause = getattr(error, "cause", None)
    text = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
