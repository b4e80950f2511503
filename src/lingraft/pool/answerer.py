"""Problems answered one at a time: what every worker does, wherever it runs."""

import os
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from lingraft.process_memory import die_first, forget_peak, is_out_of_memory, limit_memory
from lingraft.solver.crown import device_of
from lingraft.solver.network import Network
from lingraft.solver.remainder import Remainder
from lingraft.solver.request import Limits
from lingraft.solver.verifier import Problem, Result, Verifier

#: Data that a worker may take beyond its memory limit, for what is not counted: code, small tensors, solvers.
SLACK = 512 * 1024**2


def decide(
    verifier: Verifier, problem: Problem, timeout: float, memory: float, seed: int, prove: bool = False
) -> Result:
    """The verdict on one problem, with its proof on request; an unexpected exception is none, and ends as unknown."""
    return _guarded(verifier, lambda: verifier.verify(problem, timeout, memory, seed, prove))


def _guarded(verifier: Verifier, run: Callable[[], Result]) -> Result:
    """What `run` gives; an exception ends as unknown."""
    started = time.monotonic()
    try:
        with torch.inference_mode(False), torch.enable_grad():  # attacks need gradients, whatever the caller does
            result = run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        result = Result("unknown", "", "memory" if is_out_of_memory(error) else "error")
        result.error = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
        result.seconds = time.monotonic() - started
        result.neurons = verifier.network.neurons
    if result.witness is not None:
        result.witness = result.witness.detach().cpu().clone()
    return result


@dataclass
class Divided:
    """A problem whose search was stopped: the result so far, and what is left of it in independent parts.

    `common` belongs to each of the `parts`; a worker understands them together.
    """

    result: Result
    common: bytes
    parts: list[bytes]


def setup_of(network: Network, limits: Limits) -> bytes:
    """What every worker needs to know before the first problem."""
    cpu = network.to(torch.float64, torch.device("cpu"))
    return pickle.dumps((cpu, device_of(network).type, limits.double, limits.prove))


class Answerer:
    """What every worker does: takes pickled problems, gives pickled results, with one thread and `memory` bytes."""

    def __init__(self, setup: bytes, memory: float):
        torch.set_num_threads(1)
        die_first()
        network, device, double, self.prove = pickle.loads(setup)
        self.device = torch.device(device)
        self.verifier, self.memory = Verifier(network.to(torch.float64, self.device), double), memory
        self.wanted = 0
        limit_memory(memory + SLACK)

    def divide(self, parts: int) -> None:
        """Called from another thread: what is being searched now is wanted in so many parts."""
        self.wanted = parts

    def answer(self, question: bytes, common: bytes | None, seconds: float) -> bytes:
        """The result of a problem with its seed, or of a part with what is common to all, within so many seconds.

        If it was divided meanwhile, that.
        """
        forget_peak()
        verifier, memory = self.verifier, self.memory
        if common is None:
            problem, seed = pickle.loads(question)
            problem = problem.to(self.device)
            result = _guarded(
                verifier, lambda: verifier.verify(problem, seconds, memory, seed, self.prove, self._is_wanted)
            )
        else:
            problem, collapsed, numbers = pickle.loads(common)
            left = Remainder(collapsed, numbers, pickle.loads(question))
            result = _guarded(verifier, lambda: verifier.resume(problem, left, seconds, memory, self._is_wanted))
        answer = self._divided(problem, result) if result.remainder is not None else result
        self.wanted = 0  # not before: the wish may come while the question is still being read
        return pickle.dumps(answer)

    def _is_wanted(self) -> bool:
        return self.wanted > 1

    def _divided(self, problem: Problem, result: Result) -> Divided:
        left, result.remainder = result.remainder, None
        assert left is not None
        common = pickle.dumps((problem, left.collapsed, left.numbers))
        return Divided(result, common, [pickle.dumps(part) for part in left.divide(self.wanted)])
