"""Activations in ONNX: most are one operation, which their record names; all others are here, both ways."""

from collections.abc import Callable

import numpy as np
import torch
from torch import fx, nn

from lingraft.errors import LingraftError
from lingraft.formats.graph_builder import GraphBuilder
from lingraft.formats.onnx_node import OnnxNode
from lingraft.formats.onnx_writer import OnnxWriter
from lingraft.model.activations import Activation, named_in_onnx
from lingraft.model.activations.exponential import SELU_CONSTANTS
from lingraft.model.activations.relu import prelu

#: The slope of torch's Hardsigmoid.
_SIXTH = 1 / 6

#: Operations that came later than what is written otherwise (`onnx_writer.OPSET`).
_SINCE = {"HardSwish": 14, "Mish": 18, "Gelu": 20}


def write_activation(to: OnnxWriter, activation: Activation, x: str, rank: int) -> str:
    """Write an activation of the value named x, of that rank, and give the name of the result."""
    write = _WRITERS.get(activation.name)
    if write is not None:
        return write(to, activation, x, rank)
    if activation.onnx is None:
        raise LingraftError(f"ONNX has no operation for the activation {activation.name!r}.")
    to.opset = max(to.opset, _SINCE.get(activation.onnx, to.opset))
    attributes = {attribute: activation.arguments[name] for name, attribute in activation.attributes.items()}
    return to.node(activation.onnx, x, **attributes)


def _write_clip(to: OnnxWriter, activation: Activation, x: str, rank: int) -> str:
    given = activation.arguments
    low, high = (0.0, 6.0) if activation.name == "relu6" else (given.get("min"), given.get("max"))
    ends = {"min": given.get("min_val", low), "max": given.get("max_val", high)}
    names = [("" if end is None else to.weight(name, torch.tensor(float(end)))) for name, end in ends.items()]
    return to.node("Clip", x, *(names if names[1] else names[:1]))


def _write_prelu(to: OnnxWriter, activation: Activation, x: str, rank: int) -> str:
    weight = activation.arguments["weight"]
    shape = (1,) if weight.numel() == 1 else (-1, *(1,) * (rank - 2))
    return to.node("PRelu", x, to.weight("weight", weight.detach().reshape(shape)))


def _write_softplus(to: OnnxWriter, activation: Activation, x: str, rank: int) -> str:
    beta = float(activation.arguments["beta"])
    if beta == 1:
        return to.node("Softplus", x)
    scaled = to.node("Softplus", to.node("Mul", x, to.weight("beta", torch.tensor(beta))))
    return to.node("Div", scaled, to.weight("beta", torch.tensor(beta)))


_WRITERS: dict[str, Callable[[OnnxWriter, Activation, str, int], str]] = {
    **dict.fromkeys(("relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"), _write_clip),
    "prelu": _write_prelu,
    "softplus": _write_softplus,
    "hardsigmoid": lambda to, activation, x, rank: to.node("HardSigmoid", x, alpha=_SIXTH, beta=0.5),
    "abs": lambda to, activation, x, rank: to.node("Abs", x),
    "silu": lambda to, activation, x, rank: to.node("Mul", x, to.node("Sigmoid", x)),
}

#: Of those that no single operation is named for in their record: what they are written with.
_WRITTEN_AS = {
    **{name: ("Clip",) for name, write in _WRITERS.items() if write is _write_clip},
    "prelu": ("PRelu",),
    "hardsigmoid": ("HardSigmoid",),
    "abs": ("Abs",),
    "silu": ("Sigmoid", "Mul"),
}


def written_as(activation: Activation) -> tuple[str, ...]:
    """The operations that an activation is usually written with; none if it cannot be."""
    return _WRITTEN_AS.get(activation.name) or (() if activation.onnx is None else (activation.onnx,))


def read_activation(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """The layer of an operation that a record names."""
    record = named_in_onnx(node.operation)
    assert record is not None
    given = {name: node.attribute(key, record.arguments[name]) for name, key in record.attributes.items()}
    return builder.layer(record.called_with(given).module(), node.value(0))


def _read_clip(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    """Ends are inputs, in operator sets before 11 attributes; one that is left out, or the largest number, is none."""
    ends: list[float | None] = []
    for place, name in ((1, "min"), (2, "max")):
        array = node.optional_constant(place)
        end = node.attribute(name, None) if array is None else float(np.asarray(array).item())
        ends.append(None if end is None or abs(end) >= np.finfo(np.float32).max else float(end))
    low, high = ends
    x = node.value(0)
    if low is None and high is None:
        return x
    if (low, high) == (0.0, None):
        return builder.layer(nn.ReLU(), x)
    if (low, high) == (0.0, 6.0):
        return builder.layer(nn.ReLU6(), x)
    if low is not None and high is not None:
        if not low < high:
            raise node.unsupported(f"the range from {low} to {high}, which makes a constant of it,")
        return builder.layer(nn.Hardtanh(low, high), x)
    return builder.call(torch.clamp_max, x, high) if low is None else builder.call(torch.clamp_min, x, low)


def _read_prelu(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    x, weight = node.value(0), builder.tensor(node.constant(1))
    shape = builder.shape(x)
    aligned = weight.reshape((1,) * (len(shape) - weight.ndim) + weight.shape) if weight.ndim <= len(shape) else weight
    if weight.numel() > 1 and aligned.shape != (1, shape[1], *(1,) * (len(shape) - 2)):
        raise node.unsupported(f"a slope of shape {tuple(weight.shape)} for values of shape {shape}")
    return builder.layer(prelu(aligned.reshape(-1)).module(), x)


def _single(number: float) -> float:
    """A number as ONNX holds it in an attribute, which is in single precision in every file, defaults included."""
    return float(np.float32(number))


def _stands_for(builder: GraphBuilder, attribute: float, number: float) -> bool:
    """Whether an attribute is this number of torch's, as exactly as the network computes.

    A network in single precision rounds the number to what the file has; one in double precision does not, so that the
    attribute is another number there, unless single precision holds it. A neighbour is another number in both.
    """
    return attribute == (_single(number) if builder.dtype == torch.float32 else number)


def _read_hard_sigmoid(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    alpha, beta = node.attribute("alpha", _single(0.2)), node.attribute("beta", 0.5)
    x = node.value(0)
    if _stands_for(builder, alpha, _SIXTH) and beta == 0.5:
        return builder.layer(nn.Hardsigmoid(), x)
    scaled = builder.call(torch.mul, x, builder.constant(np.array(alpha)))
    moved = builder.call(torch.add, scaled, builder.constant(np.array(beta)))
    return builder.layer(nn.Hardtanh(0.0, 1.0), moved)


def _read_selu(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    usual = SELU_CONSTANTS
    alpha, gamma = node.attribute("alpha", _single(usual[0])), node.attribute("gamma", _single(usual[1]))
    x = node.value(0)
    if _stands_for(builder, alpha, usual[0]) and _stands_for(builder, gamma, usual[1]):
        return builder.layer(nn.SELU(), x)
    return builder.call(torch.mul, builder.layer(nn.ELU(alpha), x), builder.constant(np.array(gamma)))


def _read_abs(builder: GraphBuilder, node: OnnxNode) -> fx.Node:
    return builder.call(torch.abs, node.value(0))


#: operation → what reads it, where that takes more than its name and attributes
READERS: dict[str, Callable[[GraphBuilder, OnnxNode], fx.Node]] = {
    "Abs": _read_abs,
    "Clip": _read_clip,
    "HardSigmoid": _read_hard_sigmoid,
    "PRelu": _read_prelu,
    "Selu": _read_selu,
}
