"""Questions answered one at a time: what runs in every worker, wherever that is."""

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lingraft.pool.work import Work
from lingraft.process_memory import die_first, forget_peak, limit_memory

#: What a message begins with that tells the stage of the work; pickled answers do not.
STAGE = b"stage "

#: Data that a worker may take beyond its memory limit, for what is not counted: code, small tensors, solvers.
SLACK = 512 * 1024**2


class Server:
    """Takes pickled questions, gives pickled answers; what they allocate may not exceed `memory` bytes by far."""

    def __init__(self, work: bytes, memory: float, on_stage: Callable[[str], None] | None = None):
        die_first()
        self.work: Work[Any, Any] = pickle.loads(work)
        self.work.on_stage = on_stage
        if self.work.niceness:
            _step_back(self.work.niceness)
        self.work.prepare(memory)
        limit_memory(memory + SLACK)

    def divide(self, parts: int) -> None:
        """Called from another thread: what is being worked on is wanted in `parts` parts."""
        self.work.wanted_parts = parts

    def answer(self, question: bytes, common: bytes | None, seconds: float) -> bytes:
        """The answer to a question, or to a part of one with what is common to all parts, or its division."""
        forget_peak()
        if common is None:
            answer = self.work.answer(pickle.loads(question), seconds)
        else:
            answer = self.work.resume(pickle.loads(common), pickle.loads(question), seconds)
        self.work.wanted_parts = 0  # not before: the wish may come while the question is still being read
        return pickle.dumps(answer)


def _step_back(niceness: int) -> None:
    """Leave the processors to others, also where Linux shares them out among sessions: a worker has one of its own."""
    os.nice(niceness)
    with suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as file:
        file.write(str(niceness))
