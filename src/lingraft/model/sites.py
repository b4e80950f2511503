"""Sites: the calls of activations in the forward pass of a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.model.activations import KNOWN, Activation, of_call, of_module
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.in_place import is_number, title
from lingraft.model.operations import call_of
from lingraft.model.plain import copied
from lingraft.model.tracing import trace

#: Functions, methods and modules (by lower-case name) that bend a tensor element by element and are not supported.
_UNSUPPORTED = frozenset({
    "acos", "asin", "atan", "ceil", "cosh", "erf", "exp2", "expm1", "glu", "hardshrink", "log", "log1p", "log2",
    "log10", "logsigmoid", "round", "rrelu", "rsqrt", "sinh", "softshrink", "softsign", "tan", "tanhshrink",
    "threshold", "trunc",
})  # fmt: skip


@dataclass(frozen=True)
class Site:
    """One call of an activation: its name, which activation it is, and the shape of its neurons for one image.

    In a graph whose images have no shape yet the sites have none either. `grafted` is there if it can have lines.
    """

    name: str
    activation: Activation
    shape: tuple[int, ...] = ()
    grafted: GraftedActivation | None = field(default=None, compare=False, repr=False)

    @property
    def kind(self) -> str:
        """Name of its activation."""
        return self.activation.name

    @property
    def neurons(self) -> int:
        """How many neurons it has."""
        return math.prod(self.shape)


def sites(model: nn.Module, input_shape: Sequence[int]) -> list[Site]:
    """Every activation call of `model`, in the order of the forward pass.

    `input_shape` is the shape of one image. A site is named after its module; the second call of a module gets a name
    of its own ("relu", "relu_2"); the call of a function is named after it ("relu", "relu_1").
    """
    return sites_with_shapes(trace(model), input_shape)


def sites_with_shapes(traced: fx.GraphModule, input_shape: Sequence[int]) -> list[Site]:
    """`sites` of a traced graph."""
    found = sites_of(traced)
    _require_known(traced, found)
    shapes = node_shapes(traced, tuple(input_shape))
    result = []
    for node, site in found.items():
        batch, *shape = shapes[node.name]
        if batch != 2:
            raise LingraftError(
                f"the activation {site.name!r} works on a tensor of shape {(batch, *shape)} for 2 images:"
                " its first axis must be the batch. Apply it to (batch, …)."
            )
        if not math.prod(shape):
            raise LingraftError(f"the activation {site.name!r} has no neurons: its input has shape {(batch, *shape)}.")
        result.append(replace(site, shape=tuple(shape)))
    if not result:
        raise LingraftError(f"{type(traced).__name__} has no activation to graft: lingraft knows {_known()}.")
    return result


def _require_known(traced: fx.GraphModule, found: Mapping[fx.Node, Site]) -> None:
    """Refuse a network with an operation that is in no list: it could be neither verified nor exported."""
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output") or node in found or not _from_input(node):
            continue
        what = title(node, traced)
        left_out = all(user.op == "output" for user in node.users) and "softmax" in what.lower()  # see `logits`
        if not left_out and call_of(node, traced.get_submodule, what) is None:
            raise LingraftError(f"{what} is not supported. What is: `lingraft doctor --operations`.")


def grafted_activations(model: nn.Module) -> dict[str, GraftedActivation]:
    """The grafted activations of `model` by site name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, GraftedActivation)}


def sites_of(traced: fx.GraphModule) -> dict[fx.Node, Site]:
    """The calls of a traced graph that are sites; an activation that is not supported is an error that names it."""
    found: dict[fx.Node, Site] = {}
    taken: set[str] = set()
    for node in traced.graph.nodes:
        activation = activation_of(traced, node)
        if activation is None:
            _refuse_unknown(traced, node)
            continue
        module = traced.get_submodule(str(node.target)) if node.op == "call_module" else None
        if module is not None:
            base = str(node.target)
            name = _unused(base, taken) if base in taken else base
        else:
            name = node.name
            if name in taken or hasattr(traced, name):
                name = _unused(name, taken | {n for n, _ in traced.named_modules()} | set(dir(traced)))
        taken.add(name)
        grafted = module if isinstance(module, GraftedActivation) else None
        found[node] = Site(name, activation, grafted=grafted)
    return found


def _unused(base: str, taken: set[str]) -> str:
    number = 2
    while f"{base}_{number}" in taken:
        number += 1
    return f"{base}_{number}"


def activation_of(traced: fx.GraphModule, node: fx.Node) -> Activation | None:
    """Which activation a node of a traced graph calls; None if it calls something else."""
    if node.op == "call_module":
        module = traced.get_submodule(str(node.target))
        if type(module) is GraftedActivation:
            return module.base
        return of_module(module)
    if node.op not in ("call_function", "call_method") or not _of_data(node):
        return None
    known = of_call(node.target)
    return None if known is None else known.called_with(_arguments(traced, node, known))


def _refuse_unknown(traced: fx.GraphModule, node: fx.Node) -> None:
    """Refuse a call that bends a tensor and is no activation that lingraft knows."""
    if node.op == "call_module":
        name = type(traced.get_submodule(str(node.target))).__name__
        if name.lower() in _UNSUPPORTED:
            raise _unsupported(f"layer {node.target!r} ({name})")
    elif node.op in ("call_function", "call_method") and _of_data(node):
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if name.removesuffix("_") in _UNSUPPORTED:
            where = next(iter(reversed(node.meta.get("nn_module_stack", {}))), "")
            raise _unsupported(f"{name}() as {node.name!r}" + (f" in layer {where!r}" if where else ""))


def _of_data(node: fx.Node) -> bool:
    """Whether the call works on a tensor computed from the input, not on a parameter, a constant or a size."""
    argument = node.args[0] if node.args else node.kwargs.get("input")
    return isinstance(argument, fx.Node) and _from_input(argument)


def _from_input(node: fx.Node) -> bool:
    if node.op == "placeholder":
        return True
    return not is_number(node) and any(_from_input(argument) for argument in node.all_input_nodes)


def _arguments(traced: fx.GraphModule, node: fx.Node, known: Activation) -> dict[str, Any]:
    """What the call of a function gives besides the tensor; in place or not makes no difference in a traced graph."""
    names = [*known.arguments, "inplace"]
    positional = node.args[1:] if node.args else ()
    given = {**dict(zip(names, positional, strict=False)), **node.kwargs}
    given.pop("input", None)
    given.pop("inplace", None)
    for name, value in given.items():
        if isinstance(value, fx.Node) and value.op == "get_attr" and isinstance(known.arguments.get(name), Tensor):
            given[name] = attrgetter(str(value.target))(traced)
        elif isinstance(value, fx.Node):
            raise LingraftError(f"{node.name!r}: {name} must be a number written in the model, not computed by it.")
    if len(positional) > len(names) or given.keys() - known.arguments.keys():
        raise LingraftError(f"{node.name!r} is called with arguments that lingraft does not know.")
    return given


def _unsupported(what: str) -> LingraftError:
    return LingraftError(f"{what} is an activation that lingraft does not support. Replace it with {_known()}.")


def _known() -> str:
    *names, last = (name.replace("_", " ") for name in KNOWN)
    return f"{', '.join(names)} or {last}"


class _Shapes(fx.Interpreter):
    """Runs a graph and notes the shape of every tensor, by the name of its node.

    PyTorch's ShapeProp does the same, but loads sympy, which takes longer than the two images of `node_shapes`.
    """

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.extra_traceback = False  # what fails is told in our words
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.shapes[n.name] = tuple(value.shape)
        return value


def node_shapes(traced: fx.GraphModule, input_shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Shape of what every node gives for two images.

    Two are really computed: on the device "meta", where nothing is, the first operation loads PyTorch's compiler, which
    takes longer than that for any network.
    """
    blank = copied(traced).eval()
    parameter = next(blank.parameters(), torch.empty(0))
    images = torch.zeros(2, *input_shape, dtype=parameter.dtype, device=parameter.device)
    found = _Shapes(blank)
    try:
        with torch.no_grad():
            found.run(images)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise LingraftError(
            f"{type(traced).__name__} does not take images of shape {input_shape}: {reason}."
            " One image without the batch is (channels, height, width), e.g. (3, 32, 32)."
        ) from error
    return found.shapes
