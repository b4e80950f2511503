"""Sites: the calls of activations in the forward pass of a model."""

import copy
import io
import math
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from lingraft.errors import LingraftError
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.in_place import is_number
from lingraft.model.tracing import trace

#: Calls of these torch functions, and of these methods of tensors, are sites.
_FUNCTIONS: dict[Any, str] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.relu_: "relu",
    F.leaky_relu: "leaky_relu",
    F.leaky_relu_: "leaky_relu",
    torch.sigmoid: "sigmoid",
    torch.sigmoid_: "sigmoid",
    torch.tanh: "tanh",
    torch.tanh_: "tanh",
    "relu": "relu",
    "relu_": "relu",
    "sigmoid": "sigmoid",
    "sigmoid_": "sigmoid",
    "tanh": "tanh",
    "tanh_": "tanh",
}
#: Layers of exactly these types are sites: what others derived from them compute is their own affair.
_MODULES: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
}
#: Functions, methods and modules (by lower-case name) that bend a tensor element by element and are not supported.
_UNSUPPORTED = frozenset({
    "abs", "acos", "asin", "atan", "ceil", "celu", "clamp", "clamp_max", "clamp_min", "clip", "cos", "cosh", "elu",
    "erf", "exp", "exp2", "expm1", "floor", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "log",
    "log1p", "log2", "log10", "logsigmoid", "mish", "pow", "prelu", "reciprocal", "relu6", "round", "rrelu", "rsqrt",
    "selu", "sign", "silu", "sin", "sinh", "softplus", "softshrink", "softsign", "sqrt", "square", "tan", "tanhshrink",
    "threshold", "trunc",
})  # fmt: skip


@dataclass(frozen=True)
class Site:
    """One call of an activation: its name, the shape of its neurons for one image, and which activation it is."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def neurons(self) -> int:
        """How many neurons it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Call:
    """A site in a traced graph, before its shape is known."""

    node: fx.Node
    name: str
    kind: str
    negative_slope: float
    inplace: bool


def sites(model: nn.Module, input_shape: Sequence[int]) -> list[Site]:
    """Every activation call of `model`, in the order of the forward pass.

    `input_shape` is the shape of one image. A site is named after its module; the second call of a module gets a name
    of its own ("relu", "relu_2"); the call of a function is named after it ("relu", "relu_1").
    """
    traced = trace(model)
    found = calls(traced)
    shapes = _shapes(traced, tuple(input_shape))
    result = []
    for call in found:
        batch, *shape = shapes[call.node.name]
        if batch != 2:
            raise LingraftError(
                f"the activation {call.name!r} works on a tensor of shape {(batch, *shape)} for 2 images:"
                " its first axis must be the batch. Apply it to (batch, …)."
            )
        if not math.prod(shape):
            raise LingraftError(f"the activation {call.name!r} has no neurons: its input has shape {(batch, *shape)}.")
        result.append(Site(call.name, tuple(shape), call.kind))
    if not result:
        raise LingraftError(f"{type(model).__name__} has no activation to graft: lingraft knows {_known()}.")
    return result


def grafted_activations(model: nn.Module) -> dict[str, GraftedActivation]:
    """The grafted activations of `model` by site name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, GraftedActivation)}


def calls(traced: fx.GraphModule) -> list[Call]:
    """The activation calls of a traced graph; an activation that is not supported is an error that names it."""
    found: list[Call] = []
    taken: set[str] = set()
    for node in traced.graph.nodes:
        call = _call(traced, node)
        if call is None:
            continue
        kind, negative_slope, inplace = call
        if node.op == "call_module":
            base = str(node.target)
            name = _unused(base, taken) if base in taken else base
        else:
            name = node.name
            if name in taken or hasattr(traced, name):
                name = _unused(name, taken | {n for n, _ in traced.named_modules()} | set(dir(traced)))
        taken.add(name)
        found.append(Call(node, name, kind, negative_slope, inplace))
    return found


def _unused(base: str, taken: set[str]) -> str:
    number = 2
    while f"{base}_{number}" in taken:
        number += 1
    return f"{base}_{number}"


def _call(traced: fx.GraphModule, node: fx.Node) -> tuple[str, float, bool] | None:
    """(kind, negative slope, in place) of an activation call; None for any other node."""
    if node.op == "call_module":
        module = traced.get_submodule(str(node.target))
        if type(module) is GraftedActivation:
            return module.base, module.negative_slope, False
        if type(module) in _MODULES:
            slope = float(getattr(module, "negative_slope", 0.0))
            return _MODULES[type(module)], slope, bool(getattr(module, "inplace", False))
        if type(module).__name__.lower() in _UNSUPPORTED:
            raise _unsupported(f"layer {node.target!r} ({type(module).__name__})")
        return None
    if node.op not in ("call_function", "call_method") or not _of_data(node):
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.target in _FUNCTIONS:
        kind = _FUNCTIONS[node.target]
        slope = _argument(node, 1, "negative_slope", 0.01) if kind == "leaky_relu" else 0.0
        position = 2 if kind == "leaky_relu" else 1
        inplace = name.endswith("_") or bool(_argument(node, position, "inplace", False))
        return kind, float(slope), inplace
    if name.removesuffix("_") in _UNSUPPORTED:
        where = next(iter(reversed(node.meta.get("nn_module_stack", {}))), "")
        raise _unsupported(f"{name}() as {node.name!r}" + (f" in layer {where!r}" if where else ""))
    return None


def _of_data(node: fx.Node) -> bool:
    """Whether the call works on a tensor computed from the input, not on a parameter, a constant or a size."""
    argument = node.args[0] if node.args else node.kwargs.get("input")
    return isinstance(argument, fx.Node) and argument.op != "get_attr" and not is_number(argument)


def _argument(node: fx.Node, position: int, name: str, default: Any) -> Any:
    value = node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
    if isinstance(value, fx.Node):
        raise LingraftError(f"{node.name!r}: {name} must be a number written in the model, not computed by it.")
    return value


def _unsupported(what: str) -> LingraftError:
    return LingraftError(f"{what} is an activation that lingraft does not support. Replace it with {_known()}.")


def _known() -> str:
    return "relu, leaky relu, sigmoid or tanh"


def _shapes(traced: fx.GraphModule, input_shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Shape of what every node gives for two images, found without computing anything."""
    blank = copy.deepcopy(traced).to("meta").eval()
    dtype = next((p.dtype for p in blank.parameters()), torch.float32)
    try:
        with redirect_stderr(io.StringIO()):  # where it fails, PyTorch prints a traceback beside the exception
            ShapeProp(blank).propagate(torch.empty(2, *input_shape, dtype=dtype, device="meta"))
    except Exception as error:
        cause = error.__cause__ or error
        reason = str(cause).strip().splitlines()[0]
        raise LingraftError(
            f"{type(traced).__name__} does not take images of shape {input_shape}: {reason}."
            " One image without the batch is (channels, height, width), e.g. (3, 32, 32)."
        ) from error
    return {
        n.name: tuple(n.meta["tensor_meta"].shape)
        for n in blank.graph.nodes
        if hasattr(n.meta.get("tensor_meta"), "shape")
    }
