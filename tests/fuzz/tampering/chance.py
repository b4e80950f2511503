"""Choices, and what changes are made of."""

from typing import Any

import numpy as np
from onnx import helper

Rng = np.random.Generator

#: Nodes and their constants, by name.
Made = tuple[list[Any], dict[str, np.ndarray]]

#: Numbers for attributes and constants.
WHOLE = [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
REAL = [0.0, 1.0, -1.0, 0.5, 2.0, -0.25, 0.1, 1e-5, 1e-30, 1e30, 1e-45, 3.0, 1.5]


class Skip(Exception):
    """This change cannot be made here."""


def pick(rng: Rng, items: Any) -> Any:
    """One of them."""
    items = list(items)
    if not items:
        raise Skip
    return items[rng.integers(len(items))]


def write_node(operation: str, inputs: str, output: str, **attributes: Any) -> Any:
    """A node; names of inputs are separated by a space, so that two spaces leave one out."""
    return helper.make_node(operation, inputs.split(" "), [output], **attributes)


def whole(*values: int) -> np.ndarray:
    """A constant of whole numbers."""
    return np.array(values, np.int64)
