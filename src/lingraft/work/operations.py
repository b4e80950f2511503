"""The operations that lingraft knows, and what it does with each: made from the code that does it."""

import operator
from dataclasses import asdict, dataclass
from typing import Any

from lingraft.checker.operations import RULES as CHECKED
from lingraft.formats.onnx_activations import written_as
from lingraft.formats.onnx_shapes import WRITERS
from lingraft.model import activations
from lingraft.model.activations import Activation
from lingraft.model.operations import KNOWN, Operation
from lingraft.solver.lowering import HANDLERS
from lingraft.training.differentiable.intervals import RULES

_SIGNS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.neg: "-x",
    operator.matmul: "@", operator.getitem: "x[…]",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An operation or activation: its names, and whether a network with it can be worked with in which way.

    `certified` is certified training. `certificate`: whether the checker reads what it is usually exported as.
    """

    name: str
    torch: tuple[str, ...]
    onnx: tuple[str, ...]
    verified: bool
    grafted: bool
    certified: bool
    exported: bool
    certificate: bool
    #: what holds of some uses only
    note: str = ""


def rows() -> list[Row]:
    """Every operation, then every activation."""
    return [*map(_operation, KNOWN.values()), *map(_activation, activations.KNOWN.values())]


def operations() -> list[dict[str, Any]]:
    """What `lingraft doctor --operations` prints: every operation and activation that a network may consist of.

    Of each its name, what it is called in torch (layers as nn.…, functions and methods by their names) and in ONNX, and
    whether networks with it can be verified, grafted, trained with certified bounds, exported, and proven by a
    certificate.
    """
    return [asdict(row) for row in rows()]


def _operation(record: Operation) -> Row:
    name = record.name
    return Row(
        name,
        _names(tuple(record.layers), record.calls),
        record.onnx,
        verified=name in HANDLERS,
        grafted=True,  # surgery leaves everything else as it is
        certified=name in RULES,
        exported=name in WRITERS,
        certificate=name in WRITERS and all(map(_checked, record.onnx)),
        note=record.note,
    )


def _activation(record: Activation) -> Row:
    written = written_as(record)
    return Row(
        record.name.replace("_", " "),
        _names(record.modules, record.calls),
        written,
        verified=True,  # a record is all that these ask for
        grafted=True,
        certified=True,
        exported=bool(written),
        certificate=bool(written) and all(map(_checked, written)),
    )


def _names(layers: tuple[Any, ...], calls: tuple[Any, ...]) -> tuple[str, ...]:
    """Layers, then signs, then functions and methods, each name once and without those that work in place."""
    signs = [_SIGNS[call] for call in calls if call in _SIGNS]
    plain = [call for call in calls if getattr(call, "__module__", "") != "_operator"]
    named = [call if isinstance(call, str) else str(getattr(call, "__name__", call)) for call in plain]
    found = [name for name in named if not name.endswith("_") and name != "fn"]
    return tuple(dict.fromkeys([*(f"nn.{layer.__name__}" for layer in layers), *signs, *found]))


def _checked(operation: str) -> bool:
    """Whether the checker reads this operation of a value."""
    words = [rule.inputs.split()[:1] for rule in CHECKED.get(operation, [])]
    return any(word and word[0].rstrip("*?") in ("value", "any") for word in words)
