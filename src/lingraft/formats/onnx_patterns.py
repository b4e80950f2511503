"""Activations that exporters write with several operations, found again.

    x · Sigmoid(x)                              SiLU
    x · Tanh(Softplus(x))                       Mish
    x · HardSigmoid(x)                          Hardswish
    x · (1 + Erf(x/√2)) · ½                     GELU, with the ½ anywhere
    Where(βx > 20, x, Softplus(βx)/β)           Softplus

A product of two values is recognized when it is read. What it was made of stays in the graph, as something else may
read it, and is dropped at the end if nothing does.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import fx, nn

from lingraft.errors import LingraftError
from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.onnx_node import OnnxNode

#: How far √½, and products that should be 1, may be off. Exporters write √2 or its inverse, ½ and β in single
#: precision, each off by up to 2^-24 of itself, and a product or quotient has a few of them: no one number is the right
#: one. What is off by less is what a network in single precision rounds anyway (onnxruntime has no Erf in double).
_CLOSE = 2.0**-22

#: What a threshold of softplus must at least be: torch's, beyond which the rest is less than its record allows for.
_THRESHOLD = 20.0


def product(builder: GraphBuilder, left: fx.Node, right: fx.Node) -> fx.Node | None:
    """The activation that a product of two values is, times a number in case; None if it is none."""
    for x, gate in ((left, right), (right, left)):
        layer = _gated(builder, x, gate)
        if layer is not None:
            return builder.layer(layer, x)
        (x_factor, x_plain), (gate_factor, gate_plain) = _scaled(builder, x), _scaled(builder, gate)
        if _is_one_plus_erf(builder, gate_plain, x_plain):
            result = builder.layer(nn.GELU(), x_plain)
            factor = 2 * x_factor * gate_factor
            if abs(factor - 1) < _CLOSE:
                return result
            return builder.call(torch.mul, result, builder.constant(np.array(factor)))
    return None


def _gated(builder: GraphBuilder, x: fx.Node, gate: fx.Node) -> nn.Module | None:
    outer = builder.module_of(gate)
    inner = gate.args[0] if outer is not None else None
    if inner is x and type(outer) is nn.Sigmoid:
        return nn.SiLU()
    if inner is x and type(outer) is nn.Hardsigmoid:
        return nn.Hardswish()
    if type(outer) is nn.Tanh and isinstance(inner, fx.Node) and inner.args and inner.args[0] is x:
        return nn.Mish() if _is_softplus(builder, inner) else None
    return None


def _is_softplus(builder: GraphBuilder, node: fx.Node) -> bool:
    layer = builder.module_of(node)
    return isinstance(layer, nn.Softplus) and layer.beta == 1


def _is_one_plus_erf(builder: GraphBuilder, node: fx.Node, x: fx.Node) -> bool:
    """Whether it is 1 + erf(x/√2)."""
    if node.target is not torch.add or not all(isinstance(part, fx.Node) for part in node.args):
        return False
    for bent, one in (node.args, node.args[::-1]):
        if isinstance(bent, fx.Node) and bent.target is torch.erf and _number(builder, one) == 1:
            source = bent.args[0]
            factor, plain = _scaled(builder, source) if isinstance(source, fx.Node) else (0.0, None)
            return plain is x and abs(factor - math.sqrt(0.5)) < _CLOSE
    return False


def _scaled(builder: GraphBuilder, node: fx.Node) -> tuple[float, fx.Node]:
    """A value as a number times another value."""
    if node.target in (torch.mul, torch.div) and isinstance(node.args[0], fx.Node):
        number = _number(builder, node.args[1])
        if number is not None and number != 0 and builder.shape(node) == builder.shape(node.args[0]):
            factor, plain = _scaled(builder, node.args[0])
            return (factor * number if node.target is torch.mul else factor / number), plain
    return 1.0, node


def _number(builder: GraphBuilder, node: object) -> float | None:
    """The constant behind a node, if it is a single number."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    tensor = builder.root.get_buffer(str(node.target))
    return float(tensor) if tensor.numel() == 1 else None


def _erf(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    return builder.call(torch.erf, node.value(0))


def _greater(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    return builder.call(torch.gt, node.value(0), builder.constant(node.constant(1)))


def _where(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """Softplus with a threshold, or a choice that is the same for all inputs."""
    if not isinstance(node.optional(0), fx.Node):
        return _fixed_choice(builder, node)
    condition, straight, bent = (node.value(i) for i in range(3))
    factor, plain = _scaled(builder, bent)
    source = plain.args[0] if _is_softplus(builder, plain) else None
    if isinstance(source, fx.Node) and condition.target is torch.gt and condition.args[0] is source:
        beta, x = (1.0, source) if straight is source else _scaled(builder, source)
        threshold = _number(builder, condition.args[1])
        if x is straight and abs(factor * beta - 1) < _CLOSE and threshold is not None and threshold >= _THRESHOLD:
            return bent
    raise node.unsupported("a choice between two values, other than in softplus,")


def _fixed_choice(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """c·a + (1 − c)·b for conditions c of 0 and 1, where a or b may be a constant."""
    chosen = node.constant(0).astype(np.float32)
    values = [value for value in node.inputs if isinstance(value, fx.Node)]
    arrays = [chosen, *(value for value in node.inputs[1:] if isinstance(value, np.ndarray))]
    ranks = [len(builder.file_shape(value)) for value in values]
    rank = max(*ranks, *(array.ndim for array in arrays))
    across = any(array.ndim == rank and array.shape[0] != 1 for array in arrays)
    bare = across or min(ranks) < rank or any(builder.is_bare(value) for value in values)
    shift, total = None, None
    for value, weight in zip(node.inputs[1:], (chosen, 1 - chosen), strict=True):
        if isinstance(value, np.ndarray):
            shift = np.where(weight > 0, value, 0)
            continue
        assert isinstance(value, fx.Node)
        x = builder.bare(value, rank) if bare else value
        part = builder.call(torch.mul, x, builder.constant(weight))
        total = part if total is None else builder.call(torch.add, total, part)
    assert total is not None
    return total if shift is None else builder.call(torch.add, total, builder.constant(shift))


#: Operations that are read as parts of what is recognized here.
PARTS: dict[str, Callable[[GraphBuilder, OnnxNode], fx.Node]] = {"Erf": _erf, "Greater": _greater, "Where": _where}


def drop_parts(builder: GraphBuilder) -> None:
    """Drop what recognized activations were made of, now that the graph has its output; refuse parts that are left."""
    builder.drop_unused()
    for node in list(builder.graph.nodes):
        if node.target in (torch.erf, torch.gt):
            name = {torch.erf: "Erf", torch.gt: "Greater"}[node.target]
            raise LingraftError(f"the operation {name} is supported as part of an activation (GELU, softplus) only.")
        if node.target is torch.mul and isinstance(node.args[0], fx.Node) and len(node.args[0].users) == 1:
            factor, plain = _scaled(builder, node)
            if isinstance(builder.module_of(plain), nn.GELU) and abs(factor - 1) < _CLOSE:
                node.replace_all_uses_with(plain)
    builder.drop_unused()
