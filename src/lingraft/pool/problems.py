"""Problems of the verifier as work for workers."""

import os
import pickle
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from lingraft.pool.work import Divided, Work
from lingraft.process_memory import is_out_of_memory
from lingraft.solver.branching import RULES, require_rule
from lingraft.solver.network import Network, device_of
from lingraft.solver.remainder import Remainder
from lingraft.solver.request import Limits
from lingraft.solver.verifier import Problem, Result, Verifier


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
        result = Result("unknown", verifier.stage, "memory" if is_out_of_memory(error) else "error")
        result.error = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
        result.seconds = time.monotonic() - started
        result.neurons = verifier.network.neurons
    if result.witness is not None:
        result.witness = result.witness.detach().cpu().clone()
    return result


class VerifyProblems(Work[tuple[Problem, int], Result]):
    """Verdicts on problems, each with the seed of its attacks, about one network, as the limits say."""

    def __init__(self, network: Network, limits: Limits):
        self.network, self.limits, self.device = network, limits, device_of(network)
        self.gpu = self.device.type == "cuda"
        self.home = RULES[limits.branching].__module__

    def __getstate__(self) -> dict[str, Any]:
        """On the CPU: a worker has devices of its own."""
        network, device = self.network.to(torch.float64, torch.device("cpu")), torch.device(self.device.type)
        return {"network": network, "device": device, "limits": self.limits, "home": self.home}

    def prepare(self, memory: float) -> None:
        require_rule(self.limits.branching, self.home)
        with torch.inference_mode(False):
            network = self.network.to(torch.float64, self.device)
            self.verifier, self.memory = Verifier(network, self.limits.double, self.limits.branching), memory
            self.verifier.on_stage = self.on_stage

    def answer(self, question: tuple[Problem, int], seconds: float) -> Result | Divided:
        verifier, (problem, seed) = self.verifier, question
        with torch.inference_mode(False):
            problem = problem.to(self.device)
        prove = self.limits.prove
        result = _guarded(
            verifier, lambda: verifier.verify(problem, seconds, self.memory, seed, prove, self._is_wanted)
        )
        return self._divided(problem, result)

    def resume(self, common: tuple, part: list, seconds: float) -> Result | Divided:
        problem, collapsed, numbers = common
        verifier, left = self.verifier, Remainder(collapsed, numbers, part)
        result = _guarded(verifier, lambda: verifier.resume(problem, left, seconds, self.memory, self._is_wanted))
        return self._divided(problem, result)

    def failed(self, reason: str, seconds: float, error: str | None, stage: str) -> Result:
        return Result("unknown", stage or "forward", reason, seconds=seconds, error=error)

    def _is_wanted(self) -> bool:
        return self.wanted_parts > 1

    def _divided(self, problem: Problem, result: Result) -> Result | Divided:
        left, result.remainder = result.remainder, None
        if left is None:
            return result
        common = pickle.dumps((problem, left.collapsed, left.numbers))
        return Divided(result, common, [pickle.dumps(part) for part in left.divide(self.wanted_parts)])
