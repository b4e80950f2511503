"""A process that works for another one: `python -m lingraft.pool.worker_process FD MEMORY`.

It says when it is up, takes its work, says when it is ready, and then answers questions until the connection closes.
Only processes that `processes.py` starts speak to it, over a socket that nobody else has.
"""

import os
import pickle
import sys
import threading
from multiprocessing.connection import Connection

from lingraft.pool.server import STAGE, Server


def _listen(servers: list[Server]) -> None:
    """Standard input is a pipe that the parent holds open: when it closes, the parent is gone.

    A byte asks for a division, into as many parts as it says.
    """
    while parts := os.read(0, 1):
        for server in servers:
            server.divide(parts[0])
    os._exit(1)


def main(descriptor: int, memory: float) -> None:
    """Serve the process at the other end of the socket, with `memory` bytes of memory."""
    servers: list[Server] = []  # until the work is there, with which the heavy libraries are loaded
    threading.Thread(target=_listen, args=[servers], daemon=True).start()
    parent = Connection(descriptor)
    try:
        parent.send_bytes(b"up")
        servers.append(Server(parent.recv_bytes(), memory, lambda stage: parent.send_bytes(STAGE + stage.encode())))
        parent.send_bytes(b"ready")
        while True:
            parent.send_bytes(servers[0].answer(*pickle.loads(parent.recv_bytes())))
    except (EOFError, ConnectionError):  # the parent closed the connection: nothing more to do
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
