"""Every kind of activation that lingraft knows, one record each; more can be registered from outside."""

import json
from importlib import import_module
from typing import Any

from torch import nn

from lingraft.errors import LingraftError
from lingraft.model.activations.clipped import ABS, CLAMP, CLAMP_MAX, CLAMP_MIN, HARDSIGMOID, HARDTANH, RELU6
from lingraft.model.activations.convex import EXPONENTIAL, RECIPROCAL, ROOT
from lingraft.model.activations.cube import CUBE
from lingraft.model.activations.exponential import CELU, ELU, SELU, SOFTPLUS
from lingraft.model.activations.gated import GELU, HARDSWISH, MISH, SILU
from lingraft.model.activations.record import Activation, Lines
from lingraft.model.activations.relu import LEAKY_RELU, PRELU, RELU
from lingraft.model.activations.sigmoid import SIGMOID, TANH
from lingraft.model.activations.soundness import require_sound
from lingraft.model.activations.square import SQUARE
from lingraft.model.activations.steps import FLOOR, SIGN
from lingraft.model.activations.waves import COSINE, SINE
from lingraft.names import lookup

__all__ = [
    "KNOWN",
    "PARTS",
    "Activation",
    "Lines",
    "activation",
    "is_own",
    "kind_of",
    "named_in_onnx",
    "of_call",
    "of_module",
    "register",
]

_MADE_OF_LINES = (RELU, LEAKY_RELU, PRELU, RELU6, HARDTANH, HARDSIGMOID, CLAMP, CLAMP_MIN, CLAMP_MAX, ABS)
_SMOOTH = (SIGMOID, TANH, GELU, SILU, MISH, HARDSWISH, SOFTPLUS, ELU, CELU, SELU)

#: name → the record for the arguments that torch takes if none are given
KNOWN: dict[str, Activation] = {record.name: record for record in (*_MADE_OF_LINES, *_SMOOTH)}

#: name → the record of a function that is no activation of a model: operations are written with these
PARTS: dict[str, Activation] = {
    record.name: record for record in (SQUARE, CUBE, EXPONENTIAL, RECIPROCAL, ROOT, SINE, COSINE, SIGN, FLOOR)
}

#: Names that mean the same wherever this version of lingraft runs.
_OWN = frozenset({*KNOWN, *PARTS})


def register(record: Activation) -> Activation:
    """Let lingraft know an activation: it can then be traced, verified, grafted and, if ONNX has it, exported.

    A record whose lines, bounds, gap, size or torch calls do not hold is refused (see `require_sound`).
    """
    for other in (*KNOWN.values(), *PARTS.values()):
        if other.name == record.name or (record.onnx is not None and other.onnx == record.onnx):
            raise LingraftError(f"the activation {record.name!r} is known already. Take another name.")
        taken = {*other.calls, *other.modules} & {*record.calls, *record.modules}
        if taken:
            raise LingraftError(f"{taken.pop()} is {other.name!r} already, and cannot be {record.name!r} as well.")
    require_sound(record)
    KNOWN[record.name] = record
    return record


def activation(kind: str) -> Activation:
    """The record of that kind: a name, followed by arguments that are not the usual ones, as `kind_of` writes them.

    Also of the functions that operations are written with, which are no activations of a model.
    """
    if kind in PARTS:
        return PARTS[kind]
    name, _, arguments = kind.partition(" ")
    record = KNOWN[name] if name in KNOWN else lookup("activation", name, KNOWN)
    return record.called_with(json.loads(arguments)) if arguments else record


def kind_of(record: Activation) -> str:
    """What `activation` finds a record by; not for those that have tensors as arguments."""
    usual = KNOWN.get(record.name)
    if usual is None or usual.called_with(record.arguments) is usual:
        return record.name
    return f"{record.name} {json.dumps(dict(record.arguments))}"


def is_own(kind: str) -> bool:
    """Whether an activation of that kind is lingraft's own, and not one that was registered."""
    return kind.partition(" ")[0] in _OWN


def of_call(target: Any) -> Activation | None:
    """The record of a torch function, or of the tensor method of that name."""
    return next((record for record in KNOWN.values() if target in record.calls), None)


def of_module(module: nn.Module) -> Activation | None:
    """The record of a layer: of exactly such a type, as what others derived from it compute is their own affair.

    A ReLU6 is torch's Hardtanh with ends that no call takes but that somebody may have set: then it is one of these.
    """
    if type(module) is nn.ReLU6 and (module.min_val, module.max_val) != (0.0, 6.0):
        return HARDTANH.called_with({"min_val": module.min_val, "max_val": module.max_val})
    known = next((record for record in KNOWN.values() if type(module) in record.modules), None)
    return None if known is None else known.called_with({name: getattr(module, name) for name in known.arguments})


def named_in_onnx(operation: str) -> Activation | None:
    """The record of an ONNX operation."""
    return next((record for record in KNOWN.values() if record.onnx == operation), None)


def restored(name: str, home: str, arguments: dict[str, Any]) -> Activation:
    """The record that another process pickled; the module that registers it is imported if that was not done yet."""
    if name in PARTS:
        return PARTS[name]
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
