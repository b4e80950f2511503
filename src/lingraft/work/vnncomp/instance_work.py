"""Instances as work for workers."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.formats.answer import Answer
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.pool.work import Work
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.instance import Instance


@dataclass
class DecideInstances(Work[tuple[Path, Path], Answer]):
    """Answers to instances, each an ONNX and a VNN-LIB file; reading them counts towards the time.

    Each instance has a time limit of its own instead of that of the limits.
    The last network is kept, since benchmarks ask much about few.
    """

    limits: Limits
    network: OnnxNetwork | None = None

    def prepare(self, memory: float) -> None:
        self.memory = memory

    def answer(self, question: tuple[Path, Path], seconds: float) -> Answer:
        """The answer; files that cannot be read are the answer "error"."""
        started = time.monotonic()
        onnx, vnnlib = question
        limits = replace(self.limits, timeout=seconds, memory=self.memory)
        try:
            if self.network is None or self.network.path != onnx:
                self.network = None  # frees its memory before the next one is read
                self.network = OnnxNetwork(onnx)
            return Instance.read(self.network, vnnlib).answer(limits, started)
        except LingraftError as error:
            return Answer("error", time.monotonic() - started, reason=str(error))

    def failed(self, reason: str, seconds: float, error: str | None, stage: str) -> Answer:
        return Answer("timeout" if reason == "time" else "error", seconds, reason=error or reason, stage=stage or None)
