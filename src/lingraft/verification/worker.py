"""A process that verifies one image at a time for another one: `python -m lingraft.verification.worker FD MEMORY`.

It says when it is up, takes the network, says when it is ready, and then answers problems until the connection closes.
Only processes that `workers.py` starts speak to it, over a socket that nobody else has.
"""

import os
import pickle
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingraft.verification.network import Network
    from lingraft.verification.request import Limits
    from lingraft.verification.verifier import Problem, Result, Verifier

#: Data that a worker may take beyond its memory limit, for what is not counted: code, small tensors, solvers.
SLACK = 512 * 1024**2


def decide(
    verifier: "Verifier", problem: "Problem", timeout: float, memory: float, seed: int, prove: bool = False
) -> "Result":
    """The verdict on one problem, with its proof on request; an unexpected exception is none, and ends as unknown."""
    import time
    import traceback

    import torch

    from lingraft.verification.process_memory import is_out_of_memory
    from lingraft.verification.verifier import Result

    started = time.monotonic()
    try:
        with torch.inference_mode(False), torch.enable_grad():  # attacks need gradients, whatever the caller does
            result = verifier.verify(problem, timeout, memory, seed, prove)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        result = Result("unknown", "", "memory" if is_out_of_memory(error) else "error")
        result.error = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
        result.seconds = time.monotonic() - started
        result.neurons = verifier.network.neurons
    if result.witness is not None:
        result.witness = result.witness.detach().cpu().clone()
    return result


def setup_of(network: "Network", limits: "Limits") -> bytes:
    """What every worker needs to know before the first problem."""
    return pickle.dumps((network, limits.double, limits.timeout, limits.prove))


class Answerer:
    """What every worker does: takes pickled problems, gives pickled results, with one thread and `memory` bytes."""

    def __init__(self, setup: bytes, memory: float):
        import torch

        from lingraft.verification.process_memory import die_first, limit_memory
        from lingraft.verification.verifier import Verifier

        torch.set_num_threads(1)
        die_first()
        network, double, self.timeout, self.prove = pickle.loads(setup)
        self.verifier, self.memory = Verifier(network, double), memory
        limit_memory(memory + SLACK)

    def answer(self, question: bytes) -> bytes:
        """The result of a problem and its seed."""
        from lingraft.verification.process_memory import forget_peak

        problem, seed = pickle.loads(question)
        forget_peak()
        return pickle.dumps(decide(self.verifier, problem, self.timeout, self.memory, seed, self.prove))


def _end_with_parent() -> None:
    """Standard input is a pipe that the parent holds open: when it closes, the parent is gone."""
    os.read(0, 1)
    os._exit(1)


def main(descriptor: int, memory: float) -> None:
    """Serve the process at the other end of the socket, with so many bytes of memory."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from multiprocessing.connection import Connection

    import lingraft.verification.verifier  # noqa: F401  (before we say that we are up)

    parent = Connection(descriptor)
    try:
        parent.send_bytes(b"up")
        answerer = Answerer(parent.recv_bytes(), memory)
        parent.send_bytes(b"ready")
        while True:
            parent.send_bytes(answerer.answer(parent.recv_bytes()))
    except (EOFError, ConnectionError):  # the parent closed the connection: nothing more to do
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
