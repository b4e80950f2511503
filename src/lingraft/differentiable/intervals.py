"""Interval bounds of every site and of the logits, as functions of the weights."""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from lingraft.differentiable.graph import BoundedGraph, Statistics, graph_of
from lingraft.errors import LingraftError

if TYPE_CHECKING:
    from lingraft.grafting.activation import GraftedActivation
    from lingraft.grafting.sites import Call

#: Monotone in every input: they may be applied to the lower and to the upper bounds alike.
_MONOTONE_MODULES = (
    nn.Flatten, nn.Unflatten, nn.Identity, nn.ZeroPad2d, nn.ConstantPad2d, nn.MaxPool2d, nn.AvgPool2d,
    nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
_MONOTONE_CALLS = frozenset(
    {
        "adaptive_avg_pool2d", "add", "avg_pool2d", "cat", "concat", "contiguous", "flatten", "getitem", "max_pool2d",
        "mean", "pad", "permute", "reshape", "squeeze", "sum", "transpose", "unsqueeze", "view",
    }
)  # fmt: skip
#: Done out of place, so that no bound that is kept is changed; what reads the source later reads the result.
OUT_OF_PLACE: dict[str, Callable[..., Any]] = {
    "iadd": operator.add, "add_": torch.add, "isub": operator.sub, "sub_": torch.sub, "imul": operator.mul,
    "mul_": torch.mul, "itruediv": operator.truediv, "div_": torch.div,
}  # fmt: skip
_SAME_AS = {"isub": "sub", "sub_": "sub", "imul": "mul", "mul_": "mul", "itruediv": "truediv", "div_": "truediv",
            "div": "truediv", "iadd": "add", "add_": "add"}  # fmt: skip


class Interval(NamedTuple):
    """Lower and upper bounds of the same shape."""

    lower: Tensor
    upper: Tensor


class IntervalBounds(NamedTuple):
    """What intervals know of a model on a box."""

    #: pre-activation bounds (N, *neurons) by name of the site
    sites: dict[str, Interval]
    #: bounds of what goes into the first layer with weights: the box after normalization
    first: Interval
    #: bounds of what goes into the last linear layer; of the logits, if the model does not end with one
    last: Interval


def site_intervals(model: nn.Module, lower: Tensor, upper: Tensor) -> dict[str, Interval]:
    """Pre-activation bounds (N, *neurons) of every site for images between `lower` and `upper`, (N, C, H, W) each.

    Differentiable in the weights. Batch norm uses its running statistics.
    """
    return interval_bounds(graph_of(model), lower, upper).sites


def interval_bounds(
    graph: BoundedGraph, lower: Tensor, upper: Tensor, statistics: Statistics | None = None
) -> IntervalBounds:
    """Bounds for images between `lower` and `upper`, (N, C, H, W) each; differentiable in the weights.

    A grafted neuron is its line a·x + b. Batch norm uses the `statistics` where there are some for a call, its running
    ones elsewhere: it is the same affine map for all images of the box either way. Dropout is left out.
    """
    propagation = _Propagation(graph, statistics or {})
    last = propagation.run(Interval(lower, upper))
    return IntervalBounds(propagation.found, propagation.first or last, last)


class _Propagation(fx.Interpreter):
    """Runs a graph on intervals up to the last linear layer and keeps what goes into each site."""

    def __init__(self, graph: BoundedGraph, statistics: Statistics):
        super().__init__(graph.module)
        self.sites, self.grafted = graph.sites, graph.grafted
        self.statistics = statistics
        self.skipped = graph.last if graph.last_layer is not None else None
        self.first: Interval | None = None
        self.found: dict[str, Interval] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in ("call_module", "call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        source = n.args[0] if n.args else n.kwargs.get("input")
        inputs: Any = args[0] if args else kwargs.get("input")
        if n in self.sites:
            self.found[self.sites[n].name] = inputs
            result = _site(inputs, self.sites[n], self.grafted.get(n))
            in_place = self.sites[n].inplace
        elif n is self.skipped:
            return inputs
        elif n.op == "call_module" and isinstance(inputs, Interval):
            module = self.fetch_attr(str(n.target))
            if self.first is None and isinstance(module, nn.Conv2d | nn.Linear):
                self.first = inputs
            return _layer(inputs, module, str(n.target), self.statistics.get(n))
        elif n.op == "call_module":
            return super().run_node(n)
        else:
            name = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target))
            result = _call(_function(n), name, args, kwargs)
            in_place = name in OUT_OF_PLACE and isinstance(inputs, Interval)
        if in_place and isinstance(source, fx.Node):
            self.env[source] = result
        return result


def _function(node: fx.Node) -> Callable[..., Any]:
    if callable(node.target):
        return node.target
    name = str(node.target)
    return lambda x, *rest, **named: getattr(x, name)(*rest, **named)


def _site(x: Interval, call: "Call", grafted: "GraftedActivation | None") -> Interval:
    """Every activation is monotone, and so is a line, up or down."""
    if call.negative_slope < 0:
        raise _unsupported("a leaky ReLU with a slope below 0, which is not monotone,")
    if grafted is not None and grafted.grafted:
        return _sorted(grafted(x.lower), grafted(x.upper))
    function = {
        "relu": F.relu,
        "leaky_relu": lambda z: F.leaky_relu(z, call.negative_slope),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }[call.kind]
    return _ends(function, x)


def _ends(function: Callable[[Tensor], Tensor], x: Interval) -> Interval:
    return Interval(function(x.lower), function(x.upper))


def _sorted(one: Tensor, other: Tensor) -> Interval:
    return Interval(torch.minimum(one, other), torch.maximum(one, other))


def _layer(x: Interval, module: nn.Module, name: str, statistics: tuple[Tensor, Tensor] | None) -> Interval:
    if isinstance(module, nn.Conv2d) and module.padding_mode == "zeros":
        return _linear(
            x,
            module.weight,
            module.bias,
            lambda x, w, b: F.conv2d(x, w, b, module.stride, module.padding, module.dilation, module.groups),
        )
    if isinstance(module, nn.Linear):
        return _linear(x, module.weight, module.bias, F.linear)
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        scale, shift = batch_norm_line(module, x.lower.dim(), statistics)
        scaled = _scale(x, scale)
        return Interval(scaled.lower + shift, scaled.upper + shift)
    if isinstance(module, nn.Dropout | nn.Dropout2d):
        return x
    if isinstance(module, _MONOTONE_MODULES):
        return _ends(module, x)
    raise _unsupported(f"layer {name!r} ({type(module).__name__})")


def _linear(
    x: Interval, weight: Tensor, bias: Tensor | None, apply: Callable[[Tensor, Tensor, Tensor | None], Tensor]
) -> Interval:
    center = apply((x.lower + x.upper) / 2, weight, bias)
    radius = apply((x.upper - x.lower) / 2, weight.abs(), None)
    return Interval(center - radius, center + radius)


def _scale(x: Interval, factor: Tensor | float) -> Interval:
    return _sorted(x.lower * factor, x.upper * factor)


def batch_norm_line(
    module: nn.BatchNorm1d | nn.BatchNorm2d, dimensions: int, statistics: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """Scale and shift of batch norm by these statistics or its running ones, to broadcast over (N, C, …)."""
    mean, variance = statistics or (module.running_mean, module.running_var)
    if mean is None or variance is None:
        raise LingraftError("batch norm without running statistics has no bounds. Use track_running_stats=True.")
    scale = (variance + module.eps).rsqrt()
    scale = scale if module.weight is None else scale * module.weight
    shift = -mean * scale
    shift = shift if module.bias is None else shift + module.bias
    shape = (1, -1) + (1,) * (dimensions - 2)
    return scale.view(shape), shift.view(shape)


def _call(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function or method that may have intervals among its arguments."""
    flat = _intervals(args) + _intervals(kwargs.values())
    if not flat:
        return function(*args, **kwargs)
    if name in ("size", "dim", "getattr"):
        return function(*(_end(a, 0) for a in args), **kwargs)
    if kwargs.get("alpha", 1) != 1:
        raise _unsupported(f"operation {name!r} with a factor alpha")
    function, name = OUT_OF_PLACE.get(name, function), _SAME_AS.get(name, name)
    if name in ("sub", "mul", "truediv", "neg") and kwargs.keys() - {"alpha"}:  # other=…, rounding_mode=…
        raise _unsupported(f"operation {name!r} with named arguments")
    if name == "sub" and len(args) == 2 and isinstance(args[1], Interval):
        first = args[0] if isinstance(args[0], Interval) else Interval(args[0], args[0])
        return Interval(first.lower - args[1].upper, first.upper - args[1].lower)
    if name == "dropout":
        return flat[0]
    if name == "sub" or name in _MONOTONE_CALLS:
        low, high = (
            function(*(_end(a, end) for a in args), **{k: _end(a, end) for k, a in kwargs.items()}) for end in (0, 1)
        )
        return Interval(low, high)
    if name in ("mul", "truediv", "neg") and len(flat) == 1:
        if name == "neg":
            return Interval(-flat[0].upper, -flat[0].lower)
        constant = args[1] if isinstance(args[0], Interval) else args[0]
        if name == "mul":
            return _scale(flat[0], constant)
        if isinstance(args[0], Interval):
            return _scale(flat[0], operator.truediv(1, constant))
    raise _unsupported(f"operation {name!r}")


def _intervals(values: Any) -> list[Interval]:
    found = []
    for value in values:
        if isinstance(value, Interval):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(_intervals(value))
    return found


def _end(value: Any, end: int) -> Any:
    if isinstance(value, Interval):
        return cast(Any, value[end])
    return type(value)(_end(v, end) for v in value) if isinstance(value, list | tuple) else value


def _unsupported(what: str) -> LingraftError:
    return LingraftError(
        f"cannot bound {what} by intervals. Train without them, or write the model with convolutions, linear layers,"
        " batch norm, pooling, sums and reshaping."
    )
