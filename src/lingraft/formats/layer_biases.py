"""Biases that exporters write as an addition behind a layer, put into the layer.

This is done when the whole graph is there, where the `users` of a node are all that reads it: in an ONNX file a value
may have several names (Identity, Dropout, a Reshape that changes nothing), each of which tells of its own uses only.
"""

import math

import torch
from torch import Tensor, fx, nn

from lingraft.formats.graph_builder import GraphBuilder


def absorb_biases(builder: GraphBuilder) -> None:
    """Make every constant that is added to a layer's result the layer's bias, if nothing else reads that result."""
    for node in list(builder.graph.nodes):
        if node.op != "call_function" or node.target not in (torch.add, torch.sub):
            continue
        x, constant = node.args
        if not (isinstance(x, fx.Node) and isinstance(constant, fx.Node) and constant.op == "get_attr"):
            continue
        shift = builder.root.get_buffer(str(constant.target))
        if len(x.users) == 1 and _absorb(builder, x, shift if node.target is torch.add else -shift):
            node.replace_all_uses_with(x)
            builder.graph.erase_node(node)


def _absorb(builder: GraphBuilder, x: fx.Node, shift: Tensor) -> bool:
    """Make `shift` the bias of the layer that gives x, if it has none and the shift is one number an output."""
    layer = builder.module_of(x)
    shape = builder.shape(x)
    if isinstance(layer, nn.Linear):
        one_each = (1,) * (len(shape) - 1) + (layer.out_features,)
    elif isinstance(layer, nn.Conv1d | nn.Conv2d):
        one_each = (1, layer.out_channels) + (1,) * (len(shape) - 2)
    else:
        return False
    padded = shift.reshape((1,) * (len(shape) - shift.ndim) + tuple(shift.shape))
    if layer.bias is not None or padded.numel() not in (1, math.prod(one_each)):
        return False
    if padded.numel() > 1 and padded.shape != one_each:
        return False
    layer.bias = nn.Parameter(padded.expand(one_each).reshape(-1).clone())
    return True
