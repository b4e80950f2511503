"""Fuzzing: damaged and hostile input for every reader.

A reader may give a result or a LingraftError; anything else is a bug: another exception, a process that dies, a call
that takes very long, memory beyond what the input is worth. `LINGRAFT_FUZZ` is the number of examples for each test,
new ones every time (default: few, always the same; `make fuzz` takes many).
"""

import json
import os
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from lingraft.errors import LingraftError

EXAMPLES = int(os.environ.get("LINGRAFT_FUZZ", "15"))

settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="LINGRAFT_FUZZ" not in os.environ,
    phases=[Phase.explicit, Phase.generate],  # the examples are small, and making them smaller takes long
    suppress_health_check=list(HealthCheck),
)

#: Seconds that no reader needs, on any machine, for the small files here.
HANGS = 120

#: Bytes that no reader needs for the small files here.
TOO_MUCH = 1 << 30


@pytest.fixture(autouse=True)
def fuzz_settings() -> Iterator[None]:
    """The number of examples, and a ceiling for the memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status")
    if status.exists():
        (data,) = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmData")]
        resource.setrlimit(resource.RLIMIT_DATA, (int(data) * 1024 + TOO_MUCH, hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def mutate(data: Any, content: bytes) -> bytes:
    """Content with bytes changed, lost, doubled, or taken from elsewhere, or with a number that claims a huge size."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        if not changed:
            return data.draw(st.binary(max_size=50))
        kind = data.draw(st.sampled_from(["flip", "byte", "cut", "drop", "double", "splice", "insert", "number"]))
        place = data.draw(st.integers(0, len(changed) - 1), label="place")
        end = place + data.draw(st.integers(1, 60), label="length")
        if kind == "flip":
            changed[place] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "byte":
            changed[place] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del changed[place:]
        elif kind == "drop":
            del changed[place:end]
        elif kind == "double":
            changed[place:place] = changed[place:end]
        elif kind == "splice":
            source = data.draw(st.integers(0, len(changed) - 1))
            changed[place:end] = changed[source : source + end - place]
        elif kind == "insert":
            changed[place:place] = data.draw(st.binary(max_size=20))
        else:
            number = data.draw(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]))
            packed = struct.pack(data.draw(st.sampled_from("<>")) + "Q", number)
            changed[place : place + 4] = packed[:4] if data.draw(st.booleans()) else packed
    return bytes(changed)


#: Values that a place in a JSON file is not made for.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 10**9, -(10**9), 2**63, 10**40, 1e308, -1e-320, float("nan"), float("inf"), 0.5]),
    st.text(max_size=8),
    st.sampled_from(["", "verified", "../../etc/passwd", "/dev/zero", "\u0000", "nan", "[bold]"]),
    st.lists(st.integers(-3, 10**12), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    st.builds(lambda: [[[[[]]]]]),
)


def mutate_json(data: Any, content: Any) -> Any:
    """JSON with a value replaced, removed or added somewhere; its checksum is taken away."""
    content = json.loads(json.dumps(content))
    content.pop("crc32", None) if isinstance(content, dict) else None
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        place, key = content, None
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            inner, key = place, data.draw(st.sampled_from(keys), label="key")
            if data.draw(st.integers(0, 3)) == 0 or not isinstance(place[key], dict | list) or not place[key]:
                break
            place = place[key]
        if key is None:
            return data.draw(ODD)
        kind = data.draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if kind == "remove":
            del inner[key]
        elif kind == "add" and isinstance(inner, dict):
            inner[data.draw(st.text(max_size=5))] = data.draw(ODD)
        else:
            inner[key] = data.draw(ODD)
    return content


def survive(read: Callable[[], Any]) -> Any:
    """What `read` gives; None after a LingraftError. Everything else fails, and so does a call without end."""

    def stop(number: int, frame: Any) -> None:
        raise AssertionError(f"still reading after {HANGS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANGS)
    try:
        return read()
    except LingraftError:
        return None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def fuzzed() -> Any:
    """The tools of this file."""

    class Tools:
        bytes = staticmethod(mutate)
        json = staticmethod(mutate_json)
        survive = staticmethod(survive)

    return Tools


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples of a test: each writes the same names."""
    return tmp_path_factory.mktemp("fuzz")
