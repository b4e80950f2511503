"""Instances as work for workers."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.formats.answer import Answer
from lingraft.formats.network_files import NetworkFiles
from lingraft.interruption import Interrupted, interrupted_after
from lingraft.pool.work import Work
from lingraft.solver.request import Limits
from lingraft.work.vnncomp.networks import Networks


@dataclass
class DecideInstances(Work[tuple[NetworkFiles, Path], Answer]):
    """Answers to instances, each of ONNX files and a VNN-LIB file; reading them counts towards the time.

    Each instance has a time limit of its own instead of that of the limits.
    """

    limits: Limits

    def prepare(self, memory: float) -> None:
        self.memory, self.networks = memory, Networks()

    def answer(self, question: tuple[NetworkFiles, Path], seconds: float) -> Answer:
        """The answer; files that cannot be read are the answer "error"."""
        started = time.monotonic()
        limits = replace(self.limits, timeout=seconds, memory=self.memory)
        try:
            with interrupted_after(seconds):
                instance = self.networks.instance(*question)
            return instance.answer(limits, started)
        except Interrupted:
            return Answer("timeout", time.monotonic() - started, reason="time", stage="reading")
        except LingraftError as error:
            return Answer("error", time.monotonic() - started, reason=str(error))

    def failed(self, reason: str, seconds: float, error: str | None, stage: str) -> Answer:
        return Answer("timeout" if reason == "time" else "error", seconds, reason=error or reason, stage=stage or None)
