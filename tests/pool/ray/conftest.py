"""One Ray of two workers for all tests of a process."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from torch import nn

from lingraft.data import load
from lingraft.pool.images import verify_each
from lingraft.pool.place import HERE
from lingraft.pool.ray.connection import LOCAL, connected
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result


@pytest.fixture(scope="session")
def ray() -> Iterator[ModuleType]:
    with connected(LOCAL, 2) as ray:
        yield ray


@pytest.fixture(scope="session")
def request_(digits_net: nn.Module) -> Request:
    data = load("digits", "test").take(24)
    return Request(digits_net, data.pixels(), data.labels, eps=0.08)


@pytest.fixture(scope="session")
def expected(request_: Request) -> list[Result]:
    """The results of a single process."""
    found = dict(verify_each(request_, Limits(600), HERE))
    return [found[i] for i in range(len(request_))]
