"""Every kind of activation that lingraft knows, one record each; more can be registered from outside."""

from importlib import import_module
from typing import Any

from torch import nn

from lingraft.errors import LingraftError
from lingraft.model.activations.record import Activation, Lines
from lingraft.model.activations.relu import LEAKY_RELU, RELU
from lingraft.model.activations.sigmoid import SIGMOID, TANH
from lingraft.model.activations.soundness import require_sound
from lingraft.model.activations.square import SQUARE
from lingraft.names import lookup

__all__ = ["KNOWN", "Activation", "Lines", "activation", "named_in_onnx", "of_call", "of_module", "register"]

KNOWN: dict[str, Activation] = {record.name: record for record in (RELU, LEAKY_RELU, SIGMOID, TANH)}


def register(record: Activation) -> Activation:
    """Let lingraft know an activation: it can then be traced, verified, grafted and, if ONNX has it, exported.

    A record whose lines, bounds, gap, size or torch calls do not hold is refused (see `require_sound`).
    """
    for other in KNOWN.values():
        if other.name == record.name or (record.onnx is not None and other.onnx == record.onnx):
            raise LingraftError(f"the activation {record.name!r} is known already. Take another name.")
        taken = {*other.calls, *other.modules} & {*record.calls, *record.modules}
        if taken:
            raise LingraftError(f"{taken.pop()} is {other.name!r} already, and cannot be {record.name!r} as well.")
    require_sound(record)
    KNOWN[record.name] = record
    return record


def activation(name: str) -> Activation:
    """The record of that name, also of the square, which is no activation of a model but part of its products."""
    if name == SQUARE.name:
        return SQUARE
    return KNOWN[name] if name in KNOWN else lookup("activation", name, KNOWN)


def of_call(target: Any) -> Activation | None:
    """The record of a torch function, or of the tensor method of that name."""
    return next((record for record in KNOWN.values() if target in record.calls), None)


def of_module(module: nn.Module) -> Activation | None:
    """The record of a layer: of exactly such a type, as what others derived from it compute is their own affair."""
    known = next((record for record in KNOWN.values() if type(module) in record.modules), None)
    return None if known is None else known.called_with({name: getattr(module, name) for name in known.arguments})


def named_in_onnx(operation: str) -> Activation | None:
    """The record of an ONNX operation."""
    return next((record for record in KNOWN.values() if record.onnx == operation), None)


def restored(name: str, home: str, arguments: dict[str, Any]) -> Activation:
    """The record that another process pickled; the module that registers it is imported if that was not done yet."""
    if name == SQUARE.name:
        return SQUARE
    if name not in KNOWN:
        try:
            import_module(home)
        except ImportError as error:
            raise LingraftError(f"cannot import {home!r}, which registers the activation {name!r}: {error}") from error
    if name not in KNOWN:
        raise LingraftError(
            f"the activation {name!r} is not registered here: {home!r} does not do it when it is imported."
            " Register it at the top level of a module of its own."
        )
    return KNOWN[name].called_with(arguments)
