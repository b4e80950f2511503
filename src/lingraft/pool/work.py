"""Kinds of work: what workers do is a class of whoever asks, which the pool sends to them and never looks into."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass
class Divided:
    """Instead of an answer: the result so far, and what is left of a question in independent parts.

    `common` belongs to each of the `parts`; all are pickled, and `Work.resume` understands a part together with it.
    """

    result: Any
    common: bytes
    parts: list[bytes]


class Work(ABC, Generic[Question, Answer]):
    """One kind of work.

    It is pickled and sent to each worker once, so its class must be one that a new interpreter can import. There
    `prepare` is called, and then `answer` for one question after the other. Questions and answers are pickled as well.
    """

    #: Whether each worker on a cluster needs a GPU.
    gpu = False

    #: How much its worker processes step back behind others (as `nice` does).
    niceness = 0

    #: Set from another thread while a question is answered: the number of parts that it should be divided into, if it
    #: can be.
    wanted_parts = 0

    #: Set where somebody wants to know: to be called with the stage that work on a question enters.
    on_stage: Callable[[str], None] | None = None

    def prepare(self, memory: float) -> None:
        """Make ready what all answers need; each of them may use `memory` bytes."""

    @abstractmethod
    def answer(self, question: Question, seconds: float) -> Answer | Divided:
        """The answer, within `seconds` seconds. An exception ends the worker, and costs the question a try."""

    def resume(self, common: Any, part: Any, seconds: float) -> Answer | Divided:
        """The answer to a part of a question that was divided; only for work that divides its questions."""
        raise NotImplementedError

    @abstractmethod
    def failed(self, reason: str, seconds: float, error: str | None, stage: str) -> Answer:
        """The answer where there is none after `seconds` seconds: `reason` is "time" or "crashed".

        `stage` is the last that the worker told of, or empty.
        """
