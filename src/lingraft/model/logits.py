"""What a classifier gives last: logits, one for each class, whatever it makes of them at the end."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from lingraft.errors import LingraftError
from lingraft.model.operations import call_of
from lingraft.model.plain import plain
from lingraft.model.sites import activation_of, node_shapes
from lingraft.model.tracing import trace

_SOFTMAX = (F.softmax, torch.softmax, "softmax", F.log_softmax, torch.log_softmax, "log_softmax")
#: What a logit may be the result of, and what may be done with it afterwards; see `Operation.kind`.
_LINEAR, _AFTERWARDS = "weighs", ("same", "moves", "adds")


def logits(model: nn.Module, input_shape: Sequence[int]) -> nn.Module:
    """The model without a last softmax or log-softmax over the classes, and with two logits instead of a single one.

    Neither changes which class is the largest. Of a single logit z, (N, 1) or (N,), the class is 1 where z > 0 and 0
    elsewhere: that of the logits (0, z), whose cross entropy is the usual one of a single logit. A last sigmoid is left
    out as well, since of a probability the class is another: any single output that is not known to be a logit, or the
    sigmoid of one, is refused. A warning says what was done; a model that ends with logits is given back as it is.
    Weights are shared with the model.
    """
    model = plain(model)
    traced = trace(model)
    (output,) = (node for node in traced.graph.nodes if node.op == "output")
    last, done = output.args[0], []
    try:
        shape = node_shapes(traced, tuple(input_shape)).get(getattr(last, "name", ""), ())
    except LingraftError:
        shape = ()
    if not isinstance(last, fx.Node) or len(shape) not in (1, 2):
        return model  # it takes no such images or gives no logits at all, which whoever calls it is told better
    single = len(shape) == 1 or shape[1] == 1
    if not single and _is(traced, last, (nn.Softmax, nn.LogSoftmax), _SOFTMAX):
        _require_classes(traced, last)
        done.append(f"its last {_title(traced, last)} is left out, since the class is that of the largest logit")
        last = last.all_input_nodes[0]
    if single:
        bent = _bend(traced, last)
        if bent is not None:
            done.append(f"its last {_title(traced, bent)} is left out, since class 1 is where the logit is above 0")
            last = bent.all_input_nodes[0] if bent is last else last
            bent.replace_all_uses_with(bent.all_input_nodes[0])
        done.append("its single logit z is taken for the two logits (0, z): label 1 means z > 0, label 0 means z < 0")
        last = _two(traced, output, last)
    if not done:
        return model
    output.args = (last,)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    warnings.warn(f"{type(model).__name__}: {'; '.join(done)}.", stacklevel=3)
    return traced


def _bend(traced: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The sigmoid whose value is moved to the single output, None if that is a logit; anything else is refused."""
    while True:
        activation, call = activation_of(traced, node), None
        if activation is not None and activation.name == "sigmoid" and len(node.users) == 1:
            if _is_logit(traced, node.all_input_nodes[0]):
                return node
        elif activation is None and node.op != "placeholder":
            call = call_of(node, traced.get_submodule, node.name)
        if call is not None and call.operation.kind in ("same", "moves") and len(node.all_input_nodes) == 1:
            node = node.all_input_nodes[0]
            continue
        if _is_logit(traced, node):
            return None
        raise LingraftError(
            f"the model has a single output, which {_title(traced, node)} makes: it may be a logit or a probability,"
            " and which class it means is not known. End with a linear layer, or a sigmoid of one; or give two logits."
        )


def _is_logit(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a value is linear in what came before, with weights of its own: no probability."""
    if node.op in ("placeholder", "get_attr") or activation_of(traced, node) is not None:
        return False
    call = call_of(node, traced.get_submodule, node.name)
    kind = None if call is None else call.operation.kind
    if kind not in _AFTERWARDS:
        return kind == _LINEAR
    computed = [part for part in node.all_input_nodes if part.op != "get_attr"]
    return bool(computed) and all(_is_logit(traced, part) for part in computed)


def _is(traced: fx.GraphModule, node: fx.Node, layers: tuple[type[nn.Module], ...], calls: tuple[object, ...]) -> bool:
    if node.op == "call_module":
        return type(traced.get_submodule(str(node.target))) in layers
    return node.op in ("call_function", "call_method") and node.target in calls


def _title(traced: fx.GraphModule, node: fx.Node) -> str:
    if node.op == "call_module":
        return type(traced.get_submodule(str(node.target))).__name__
    return str(getattr(node.target, "__name__", node.target))


def _require_classes(traced: fx.GraphModule, node: fx.Node) -> None:
    """Refuse a softmax that is not over the classes."""
    dim: Any
    if node.op == "call_module":
        dim = traced.get_submodule(str(node.target)).dim
    else:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dim not in (1, -1, None):  # None: of a matrix, the last
        raise LingraftError(f"the last softmax is over dimension {dim}, not over the classes. Use dim=1.")


def _two(traced: fx.GraphModule, output: fx.Node, last: fx.Node) -> fx.Node:
    """(0, z) for each z that `last` gives."""
    reference = next(traced.parameters(), torch.zeros(()))
    layer = nn.Linear(1, 2).to(reference).requires_grad_(False)
    layer.weight.data = torch.tensor([[0.0], [1.0]]).to(reference)
    nn.init.zeros_(layer.bias)
    traced.add_submodule("two_logits", layer)
    with traced.graph.inserting_before(output):
        column = traced.graph.call_method("reshape", (last, -1, 1))
        return traced.graph.call_module("two_logits", (column,))
