"""A process that verifies one image at a time for another one: `python -m lingraft.pool.worker FD MEMORY`.

It says when it is up, takes the network, says when it is ready, and then answers problems until the connection closes.
Only processes that `workers.py` starts speak to it, over a socket that nobody else has.
"""

import os
import pickle
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingraft.pool.answerer import Answerer


def _listen(answerers: "list[Answerer]") -> None:
    """Standard input is a pipe that the parent holds open: when it closes, the parent is gone.

    A byte asks for a division into so many parts.
    """
    while parts := os.read(0, 1):
        for answerer in answerers:
            answerer.divide(parts[0])
    os._exit(1)


def main(descriptor: int, memory: float) -> None:
    """Serve the process at the other end of the socket, with so many bytes of memory."""
    answerers: list[Answerer] = []  # until the network is there
    threading.Thread(target=_listen, args=[answerers], daemon=True).start()
    from multiprocessing.connection import Connection

    from lingraft.pool import answerer

    parent = Connection(descriptor)
    try:
        parent.send_bytes(b"up")
        answerers.append(answerer.Answerer(parent.recv_bytes(), memory))
        parent.send_bytes(b"ready")
        while True:
            parent.send_bytes(answerers[0].answer(*pickle.loads(parent.recv_bytes())))
    except (EOFError, ConnectionError):  # the parent closed the connection: nothing more to do
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
