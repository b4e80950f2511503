"""Tasks done in this process, with the interface of a pool."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from lingraft.pool.work import Work


class Here:
    """Does one task after the other, when its answer is asked for; each may use `memory` bytes."""

    def __init__(self, work: Work[Any, Any], memory: float):
        self.work, self.memory = work, memory
        self.prepared = False
        self.left: deque[tuple[Any, Callable[[], Any], float]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.left.clear()

    def add(self, name: Any, ask: Callable[[], Any], seconds: float = math.inf) -> None:
        """One more task, to be answered in `seconds` at most; `ask` gives the question."""
        self.left.append((name, ask, seconds))

    def answers(self, wait: bool = True) -> Iterator[tuple[Any, Any]]:
        """The name and the answer of every task; nothing happens in the background, so `wait` changes nothing."""
        while self.left:
            if not self.prepared:
                self.work.prepare(self.memory)
                self.prepared = True
            name, ask, seconds = self.left.popleft()
            yield name, self.work.answer(ask(), seconds)
