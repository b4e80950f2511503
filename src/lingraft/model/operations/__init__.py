"""The one list of operations: whatever handles the calls of a model (bounds, training, ONNX) looks them up here."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from lingraft.model.operations.arithmetic import ARITHMETIC
from lingraft.model.operations.functions import FUNCTIONS
from lingraft.model.operations.moves import MOVES
from lingraft.model.operations.pooling import POOLING
from lingraft.model.operations.record import Call, Operation
from lingraft.model.operations.weights import WEIGHTS

__all__ = ["KNOWN", "Call", "Operation", "call_of", "of_call", "of_layer"]

KNOWN: dict[str, Operation] = {record.name: record for record in (*WEIGHTS, *POOLING, *ARITHMETIC, *FUNCTIONS, *MOVES)}

_BY_CALL: dict[Any, Operation] = {call: record for record in KNOWN.values() for call in record.calls}
_BY_LAYER: dict[type[nn.Module], Operation] = {layer: record for record in KNOWN.values() for layer in record.layers}


def of_call(target: Any) -> Operation | None:
    """The record of a torch function, or of the tensor method of that name."""
    return _BY_CALL.get(target)


def of_layer(layer: nn.Module) -> Operation | None:
    """The record of a layer: of exactly such a type, as what others derived from it compute is their own affair."""
    return _BY_LAYER.get(type_before_parametrizations(layer))


def call_of(node: fx.Node, layer: Callable[[str], nn.Module], what: str) -> Call | None:
    """The operation that a node of a graph calls, with its arguments; None if it calls anything else.

    `layer` gives the submodule of that path, `what` is how messages name the call.
    """
    kwargs: Mapping[str, Any] = node.kwargs
    if node.op == "call_module":
        module = layer(str(node.target))
        record = of_layer(module)
        if record is not None:
            kwargs = {**kwargs, **record.settings(module)}
    elif node.op in ("call_function", "call_method"):
        record = of_call(node.target)
    else:
        return None
    return None if record is None else Call(record, record.bind(what, node.args, kwargs))
