"""A web server on this machine that misbehaves on demand."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Exchange(BaseHTTPRequestHandler):
    """One request, answered as the next entry of `Web.script` says, or well if there is none."""

    server: "Web"

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        behaviour = self.server.script.pop(0) if self.server.script else good
        content = self.server.files.get(name)
        if content is None:
            self.send_error(404)
        else:
            behaviour(self, content, int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0)

    def head(self, content: bytes, start: int, length: int | None = None) -> None:
        """Status and headers of an answer that begins at `start`; `length` overrides the true length."""
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start if length is None else length))
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


Behaviour = Callable[[Exchange, bytes, int], None]


def good(exchange: Exchange, content: bytes, start: int) -> None:
    if start >= len(content):
        exchange.send_error(416)
        return
    exchange.head(content, start)
    exchange.wfile.write(content[start:])


class Web(ThreadingHTTPServer):
    """Serves `files` under any folder; `script` holds the behaviours of the next requests, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.files: dict[str, bytes] = {}
        self.script: list[Behaviour] = []
        self.requests: list[tuple[str, str | None]] = []
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the client hanging up is part of the game

    # behaviours

    good = staticmethod(good)

    @staticmethod
    def truncate(count: int) -> Behaviour:
        """Promise everything, send `count` bytes, hang up."""

        def behave(exchange: Exchange, content: bytes, start: int) -> None:
            exchange.head(content, start)
            exchange.wfile.write(content[start : start + count])

        return behave

    @staticmethod
    def stall(count: int) -> Behaviour:
        """Send `count` bytes, then keep the line open and silent."""

        def behave(exchange: Exchange, content: bytes, start: int) -> None:
            exchange.head(content, start)
            exchange.wfile.write(content[start : start + count])
            exchange.wfile.flush()
            exchange.server.over.wait(30)

        return behave

    @staticmethod
    def silent(exchange: Exchange, content: bytes, start: int) -> None:
        """Accept the request and never answer."""
        exchange.server.over.wait(30)

    @staticmethod
    def hang_up(exchange: Exchange, content: bytes, start: int) -> None:
        """Close the connection without an answer."""

    @staticmethod
    def corrupt(exchange: Exchange, content: bytes, start: int) -> None:
        """Change one byte in the middle."""
        content = bytearray(content)
        content[len(content) // 2] ^= 0xFF
        good(exchange, bytes(content), start)

    @staticmethod
    def ignore_range(exchange: Exchange, content: bytes, start: int) -> None:
        """Always send the whole file."""
        good(exchange, content, 0)

    @staticmethod
    def ignore_range_and_truncate(count: int) -> Behaviour:
        """Always begin at the beginning, and never get far."""

        def behave(exchange: Exchange, content: bytes, start: int) -> None:
            exchange.head(content, 0)
            exchange.wfile.write(content[:count])

        return behave

    @staticmethod
    def other_range(exchange: Exchange, content: bytes, start: int) -> None:
        """Send another part than was asked for."""
        exchange.head(content, start + 1)
        exchange.wfile.write(content[start + 1 :])

    @staticmethod
    def without_length(exchange: Exchange, content: bytes, start: int) -> None:
        """Say nothing of the length, and go on and on after the end of the file."""
        exchange.send_response(200)
        exchange.end_headers()
        exchange.wfile.write(content)
        while not exchange.server.over.is_set():
            exchange.wfile.write(bytes(1 << 16))

    @staticmethod
    def status(code: int) -> Behaviour:
        """Answer with an error."""

        def behave(exchange: Exchange, content: bytes, start: int) -> None:
            exchange.send_error(code)

        return behave

    @staticmethod
    def page(exchange: Exchange, content: bytes, start: int) -> None:
        """A log-in page where the file should be, as hotel networks do it."""
        good(exchange, b"<html>please log in</html>", 0)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A running server."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()
