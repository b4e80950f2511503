"""Downloading one file so that it is either whole and checked, or not there."""

import hashlib
import http.client
import io
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lingraft.errors import LingraftError

_CHUNK = 1 << 18
#: answers of the 4xx kind that may be different the next time
_PASSING = (408, 416, 425, 429)


@dataclass(frozen=True)
class Patience:
    """When to give up."""

    #: seconds without a byte until a connection counts as dead
    stall: float = 20.0
    #: rounds through all addresses, one after the other, that bring nothing new
    rounds: int = 4
    #: seconds between two rounds; doubled after each that brought nothing new
    pause: float = 1.0


class _Failed(Exception):
    """One try failed; `final` if asking the same address again is useless."""

    def __init__(self, why: str, final: bool = False):
        super().__init__(why)
        self.final = final


def download(
    urls: Sequence[str],
    path: Path,
    size: int,
    md5: str,
    report: Callable[[int], None] = lambda done: None,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
) -> None:
    """Get a file of known size and md5 sum from the first of `urls` that has it; `report` is told the bytes so far.

    What has arrived is kept beside `path` as `.part`, and the next try, of this call or of a later one, asks only for
    the rest. `path` appears when all is there and the checksum is right. Never more than `size` bytes are written.
    """
    part = path.with_name(path.name + ".part")
    _make_room(part, size)
    remaining = list(dict.fromkeys(urls))
    failures: dict[str, str] = {}
    best = _length(part)
    fruitless = 0
    while remaining and fruitless < patience.rounds:
        if failures:
            time.sleep(patience.pause * 2 ** max(0, fruitless - 1))
        fruitless += 1
        for url in tuple(remaining):
            try:
                _complete(url, part, size, report, patience.stall)
                _check(part, md5)
            except _Failed as failed:
                failures[url] = str(failed)
                if failed.final:
                    remaining.remove(url)
            else:
                with _local(path):
                    os.replace(part, path)
                return
            if (arrived := _length(part)) > best:  # a bad line is fine as long as it brings something
                best, fruitless = arrived, 0
    tried = "; ".join(f"{url}: {why}" for url, why in failures.items())
    kept = f" {have:,} of {size:,} bytes are kept for the next try." if (have := _length(part)) else ""
    raise LingraftError(
        f"could not download {path.name} ({tried}).{kept} "
        f"Try again later, name another address with --from, or put the file at {path} yourself."
    )


def md5_of(path: Path) -> str:
    """The md5 sum of a file. It guards against damage, not against forgery."""
    digest = hashlib.md5(usedforsecurity=False)
    with _local(path), open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _complete(url: str, part: Path, size: int, report: Callable[[int], None], stall: float) -> None:
    """Append to `part` what it lacks, or start it over where the server cannot go on."""
    have = _length(part)
    report(have)
    if have >= size:
        return  # a part that is too long is found out by its checksum
    request = urllib.request.Request(url, headers={"User-Agent": "lingraft", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=stall) as response:
            start = _start(response, have, size)
            have = _copy(response, part, start, size, report)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the file there is not longer than our part of it
            part.unlink(missing_ok=True)
        final = 400 <= error.code < 500 and error.code not in _PASSING
        raise _Failed(f"HTTP {error.code} {error.reason}", final) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            raise _Failed(f"nothing came for {stall:g} s") from error
        raise _Failed(str(cause) or type(cause).__name__) from error
    if have < size:
        raise _Failed(f"the connection ended after {have:,} of {size:,} bytes")


def _start(response: http.client.HTTPResponse, have: int, size: int) -> int:
    """At which byte the answer begins; an answer that is about a file of another size is refused at once."""
    if response.status == 206:
        # "bytes FIRST-LAST/TOTAL", where TOTAL may be *
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if span.split("-")[0] != str(have):
            raise _Failed("it sent another part of the file than was asked for", final=True)
    else:  # the whole file: a server may ignore the wish for a part
        have = 0
        total = response.headers.get("Content-Length", "*")
    if total not in ("*", str(size)):
        raise _Failed(f"it offers {total} bytes, and the published file has {size:,}", final=True)
    return have


def _copy(response: http.client.HTTPResponse, part: Path, start: int, size: int, report: Callable[[int], None]) -> int:
    """Write the body to `part` behind its first `start` bytes; returns how many bytes `part` then has."""
    with _local(part):
        file = open(part, "r+b" if start else "wb", buffering=0)  # noqa: SIM115  (unbuffered: a kill loses nothing)
    with file:
        if start:
            with _local(part):
                file.seek(start)
                file.truncate()
        have = start
        while have < size and (chunk := response.read1(min(_CHUNK, size - have))):
            with _local(part):
                _write(file, chunk)
            have += len(chunk)
            report(have)
        with _local(part):
            os.fsync(file.fileno())
    return have


def _write(file: io.FileIO, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]


def _check(part: Path, md5: str) -> None:
    """Throw the part away if it is not what was published."""
    if (arrived := md5_of(part)) != md5:
        part.unlink(missing_ok=True)
        raise _Failed(f"the checksum is {arrived} instead of {md5}")


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _make_room(part: Path, size: int) -> None:
    with _local(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(part.parent).free
        need = size - _length(part)
    if free < need:
        raise LingraftError(
            f"{part.parent} has {free / 1e6:,.0f} MB free, and {part.stem} needs {need / 1e6:,.0f} MB. "
            "Make room, or set LINGRAFT_DATA to a folder on another disk."
        )


@contextmanager
def _local(path: Path) -> Iterator[None]:
    """Tell errors of the local disk from those of the network: only the latter are worth another try."""
    try:
        yield
    except OSError as error:
        raise LingraftError(
            f"cannot write {path}: {error.strerror or error}. "
            "Check the folder and its free space, or set LINGRAFT_DATA to another folder."
        ) from error
