"""Answers in the form of VNN-COMP: a word, and for `sat` the counterexample as an s-expression."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lingraft.errors import LingraftError
from lingraft.formats.vnnlib_syntax import NUMBER, VARIABLE

_VALUE = re.compile(rf"\(\s*({VARIABLE})\s+({NUMBER})\s*\)")


class Placed(NamedTuple):
    """A tensor as VNN-LIB 2.0 declares it, "X real [1,5]", and where its values are among x, or y if it is computed."""

    header: str
    computed: bool
    start: int
    stop: int


@dataclass(frozen=True)
class Counterexample:
    """An input (flat, float64, in the box exactly) and the outputs that onnxruntime gives it (flat).

    Of several networks, all inputs and all outputs. Of a property in version 2.0, `placed` are its tensors.
    """

    x: np.ndarray
    y: np.ndarray
    placed: tuple[Placed, ...] = ()

    def __str__(self) -> str:
        if self.placed:
            return "\n".join(line for tensor in self.placed for line in self._lines(tensor))
        values = [("X", self.x), ("Y", self.y)]
        parts = [f"({name}_{i} {decimal(v)})" for name, array in values for i, v in enumerate(array.tolist())]
        return "(" + "\n".join(parts) + ")"

    def _lines(self, tensor: Placed) -> list[str]:
        values = self.y if tensor.computed else self.x
        return [tensor.header, *map(decimal, values[tensor.start : tensor.stop].tolist())]


@dataclass
class Answer:
    """What is known of an instance, after `seconds` seconds.

    `word` is "unsat" (no counterexample exists), "sat", "unknown", "timeout", or "error" where a tool failed. `reason`
    says why nothing better is known; `stage` is the last that was reached, `domains` counts those of all boxes.
    """

    word: str
    seconds: float = 0.0
    counterexample: Counterexample | None = None
    reason: str | None = None
    stage: str | None = None
    domains: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        point = self.counterexample
        values = None if point is None else {"x": point.x.tolist(), "y": [float(y) for y in point.y]}
        return {
            "answer": self.word,
            "reason": self.reason,
            "stage": self.stage,
            "domains": self.domains,
            "seconds": round(self.seconds, 4),
            "counterexample": values,
        }

    def __str__(self) -> str:
        return self.word if self.counterexample is None else f"{self.word}\n{self.counterexample}"


def read_counterexample(text: str, inputs: int) -> np.ndarray | None:
    """The inputs X_0 … of a counterexample in an answer, float64; None if there is none.

    Incomplete ones are a LingraftError.
    """
    values = {name: float(number) for name, number in _VALUE.findall(text) if name[0] == "X"}
    if not values:
        return None
    missing = [i for i in range(inputs) if f"X_{i}" not in values]
    if missing or len(values) != inputs:
        raise LingraftError(f"a counterexample has {len(values)} inputs, but the network {inputs}.")
    return np.array([values[f"X_{i}"] for i in range(inputs)])


def decimal(number: float) -> str:
    """All digits, without an exponent, which not every reader of VNN-LIB accepts."""
    return np.format_float_positional(number, unique=True, trim="0")
