"""Interval bounds of every site as functions of the weights, for regularizers that train them."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.grafting.sites import calls

#: Monotone in every input: they may be applied to the lower and to the upper bounds alike.
_MONOTONE_MODULES = (
    nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout, nn.Dropout2d, nn.ZeroPad2d, nn.ConstantPad2d, nn.MaxPool2d,
    nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
_MONOTONE_CALLS = frozenset(
    {
        "adaptive_avg_pool2d", "add", "add_", "avg_pool2d", "cat", "concat", "contiguous", "dropout", "flatten",
        "getitem", "iadd", "max_pool2d", "mean", "pad", "permute", "reshape", "squeeze", "sum", "transpose",
        "unsqueeze", "view",
    }
)  # fmt: skip


class Interval(NamedTuple):
    """Lower and upper bounds of the same shape."""

    lower: Tensor
    upper: Tensor


class _Propagation(fx.Interpreter):
    """Runs a graph on intervals and keeps what goes into each site."""

    def __init__(self, model: fx.GraphModule):
        super().__init__(model)
        self.site_of = {call.node: call.name for call in calls(model)}
        self.found: dict[str, Interval] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n in self.site_of:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            inputs = args[0] if args else kwargs["input"]
            self.found[self.site_of[n]] = inputs
            return _site(getattr(super(), n.op), n, args, kwargs)
        return super().run_node(n)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.fetch_attr(str(target))
        if not isinstance(args[0], Interval):
            return module(*args, **kwargs)
        if isinstance(module, nn.Conv2d) and module.padding_mode == "zeros":
            return _linear(
                args[0],
                module.weight,
                module.bias,
                lambda x, w, b: F.conv2d(x, w, b, module.stride, module.padding, module.dilation, module.groups),
            )
        if isinstance(module, nn.Linear):
            return _linear(args[0], module.weight, module.bias, F.linear)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_var is not None:
            return _batch_norm(args[0], module)
        if isinstance(module, _MONOTONE_MODULES):
            return Interval(module(args[0].lower), module(args[0].upper))
        raise _unsupported(f"layer {target!r} ({type(module).__name__})")

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _call(target, getattr(target, "__name__", str(target)), args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _call(lambda x, *rest, **named: getattr(x, target)(*rest, **named), target, args, kwargs)


def site_intervals(model: fx.GraphModule, lower: Tensor, upper: Tensor) -> dict[str, Interval]:
    """Pre-activation bounds (N, *neurons) of every site for images between `lower` and `upper`, (N, C, H, W) each.

    Differentiable in the weights. Batch norm uses its running statistics.
    """
    propagation = _Propagation(model)
    propagation.run(Interval(lower, upper))
    return propagation.found


def _site(run: Callable[..., Tensor], node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Interval:
    """Every activation is monotone, and so is a line, up or down."""

    def at(end: int) -> Tensor:
        ends = [a[end] if isinstance(a, Interval) else a for a in args]
        named = {k: a[end] if isinstance(a, Interval) else a for k, a in kwargs.items()}
        return run(node.target, tuple(ends), named)

    ends = at(0), at(1)
    return Interval(torch.minimum(*ends), torch.maximum(*ends))


def _linear(
    x: Interval, weight: Tensor, bias: Tensor | None, apply: Callable[[Tensor, Tensor, Tensor | None], Tensor]
) -> Interval:
    center = apply((x.lower + x.upper) / 2, weight, bias)
    radius = apply((x.upper - x.lower) / 2, weight.abs(), None)
    return Interval(center - radius, center + radius)


def _scale(x: Interval, factor: Tensor | float) -> Interval:
    ends = x.lower * factor, x.upper * factor
    return Interval(torch.minimum(*ends), torch.maximum(*ends))


def _batch_norm(x: Interval, module: nn.BatchNorm1d | nn.BatchNorm2d) -> Interval:
    assert module.running_mean is not None
    assert module.running_var is not None
    factor = (module.running_var + module.eps).rsqrt()
    factor = factor if module.weight is None else factor * module.weight
    shift = -module.running_mean * factor
    shift = shift if module.bias is None else shift + module.bias
    shape = (1, -1) + (1,) * (x.lower.dim() - 2)
    scaled = _scale(x, factor.view(shape))
    return Interval(scaled.lower + shift.view(shape), scaled.upper + shift.view(shape))


def _call(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function or method that may have intervals among its arguments."""
    flat = _intervals(args) + _intervals(kwargs.values())
    if not flat:
        return function(*args, **kwargs)
    if name in ("size", "dim", "getattr"):
        return function(*(_end(a, 0) for a in args), **kwargs)
    if name in ("sub", "isub") and len(args) == 2 and isinstance(args[1], Interval):
        first = args[0] if isinstance(args[0], Interval) else Interval(args[0], args[0])
        return Interval(first.lower - args[1].upper, first.upper - args[1].lower)
    if name in ("sub", "isub") or name in _MONOTONE_CALLS:
        low, high = (
            function(*(_end(a, end) for a in args), **{k: _end(a, end) for k, a in kwargs.items()}) for end in (0, 1)
        )
        return Interval(low, high)
    if name in ("mul", "imul", "truediv", "itruediv", "div", "neg") and len(flat) == 1:
        if name == "neg":
            return Interval(-flat[0].upper, -flat[0].lower)
        constant = args[1] if isinstance(args[0], Interval) else args[0]
        if name in ("mul", "imul"):
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
        return value[end]
    return [_end(v, end) for v in value] if isinstance(value, list) else value


def _unsupported(what: str) -> LingraftError:
    return LingraftError(
        f"the stability regularizer cannot bound {what}. Train without it, or write the model with convolutions, linear"
        " layers, batch norm, pooling, sums and reshaping."
    )
