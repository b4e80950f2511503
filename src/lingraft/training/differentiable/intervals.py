"""Interval bounds of every site and of the logits, as functions of the weights.

Only what is known is bounded: layers, functions, methods and attributes that are listed here, by themselves and not by
their names. Anything else is an error, since a bound of it would be a guess.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.model.sites import Site
from lingraft.solver.intervals import share
from lingraft.training.differentiable.graph import BoundedGraph, Statistics, graph_of

#: Monotone in every input: they may be applied to the lower and to the upper bounds alike.
_MONOTONE_MODULES = (
    nn.Flatten, nn.Unflatten, nn.Identity, nn.ZeroPad2d, nn.ConstantPad2d, nn.MaxPool2d, nn.AvgPool2d,
    nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
_MONOTONE_CALLS = frozenset(
    {
        F.adaptive_avg_pool2d, F.avg_pool2d, F.max_pool2d, F.pad, operator.add, operator.getitem, torch.add, torch.cat,
        torch.concat, torch.flatten, torch.max_pool2d, torch.mean, torch.permute, torch.reshape, torch.squeeze,
        torch.sum, torch.transpose, torch.unsqueeze,
        "add", "contiguous", "flatten", "mean", "permute", "reshape", "squeeze", "sum", "transpose", "unsqueeze",
        "view",
    }
)  # fmt: skip
#: With these they are something else: a cast, another divisor, a second result, more than sizes and places.
_ALTERING = frozenset({"divisor_override", "dtype", "out", "return_indices"})
#: Done out of place, so that no bound that is kept is changed; in a traced graph, what comes later reads the result.
OUT_OF_PLACE: dict[Any, Callable[..., Any]] = {
    operator.iadd: operator.add, "add_": torch.add, operator.isub: operator.sub, "sub_": torch.sub,
    operator.imul: operator.mul, "mul_": torch.mul, operator.itruediv: operator.truediv, "div_": torch.div,
}  # fmt: skip
_SUB = frozenset({operator.sub, torch.sub, "sub"})
_MUL = frozenset({operator.mul, torch.mul, "mul"})
_DIV = frozenset({operator.truediv, torch.div, "div"})
_NEG = frozenset({operator.neg, torch.neg, "neg"})
DROPOUT = frozenset({F.dropout, F.dropout2d})
#: What a tensor says of itself without telling its values.
_ASKED_METHODS = frozenset({"dim", "numel", "size"})
_ASKED_ATTRIBUTES = frozenset({"device", "dtype", "ndim", "shape"})


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
    graph: BoundedGraph, lower: Tensor, upper: Tensor, statistics: Statistics | None = None, rounded: bool = False
) -> IntervalBounds:
    """Bounds for images between `lower` and `upper`, (N, C, H, W) each; differentiable in the weights.

    A grafted neuron is its line a·x + b. Batch norm uses the `statistics` where there are some for a call, its running
    ones elsewhere: it is the same affine map for all images of the box either way. Dropout is left out. If `rounded`,
    bounds in float64 are widened by what rounding may have taken from them, as proofs need it.
    """
    propagation = _Propagation(graph, statistics or {}, share if rounded else _nothing)
    last = propagation.run(Interval(lower, upper))
    return IntervalBounds(propagation.found, propagation.first or last, last)


class _Propagation(fx.Interpreter):
    """Runs a graph on intervals up to the last linear layer and keeps what goes into each site."""

    def __init__(self, graph: BoundedGraph, statistics: Statistics, loss: "_Share"):
        super().__init__(graph.module)
        self.sites = graph.sites
        self.statistics, self.loss = statistics, loss
        self.skipped = graph.last if graph.last_layer is not None else None
        self.first: Interval | None = None
        self.found: dict[str, Interval] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in ("call_module", "call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        inputs: Any = args[0] if args else kwargs.get("input")
        if n in self.sites:
            self.found[self.sites[n].name] = inputs
            return _site(inputs, self.sites[n], self.loss)
        if n is self.skipped:
            return inputs
        if n.op == "call_module" and isinstance(inputs, Interval):
            module = self.fetch_attr(str(n.target))
            if self.first is None and isinstance(module, nn.Conv2d | nn.Linear):
                self.first = inputs
            return _layer(inputs, module, str(n.target), self.statistics.get(n), self.loss)
        if n.op == "call_module":
            return super().run_node(n)
        return _call(n.target, args, kwargs, self.loss)


#: How much of a sum of so many terms rounding may take, as a share of their sizes.
_Share = Callable[[int], float]


def _nothing(terms: int) -> float:
    return 0.0


def _widened(x: Interval, loss: float, sizes: Tensor | None = None) -> Interval:
    """Wider by a share of `sizes`, what the bounds were computed from; by default they themselves."""
    if not loss:
        return x
    slack = loss * (_sizes(x) if sizes is None else sizes.abs())
    return Interval(x.lower - slack, x.upper + slack)


def _sizes(x: Interval) -> Tensor:
    return torch.maximum(x.lower.abs(), x.upper.abs())


def _as_function(target: Any) -> Callable[..., Any]:
    if callable(target):
        return cast(Callable[..., Any], target)
    return lambda x, *rest, **named: getattr(x, str(target))(*rest, **named)


def _site(x: Interval, site: Site, loss: _Share) -> Interval:
    """What the activation's record says of it, and of a line its values at the ends, up or down."""
    grafted, activation = site.grafted, site.activation
    if grafted is None or not grafted.grafted:
        return _widened(Interval(*activation.between(*x)), loss(1))
    slope, intercept = grafted.line()
    terms = slope.abs() * _sizes(x) + intercept.abs()
    result = _sorted(grafted(x.lower), grafted(x.upper))
    if activation.interval is not None:  # what is not grafted may be lower or higher in between than at the ends
        low, high = activation.interval(*x)
        result = Interval(torch.where(grafted.mask, result.lower, low), torch.where(grafted.mask, result.upper, high))
    return _widened(result, loss(1), torch.where(grafted.mask, terms, 0.0))


def _sorted(one: Tensor, other: Tensor) -> Interval:
    return Interval(torch.minimum(one, other), torch.maximum(one, other))


def _layer(
    x: Interval, module: nn.Module, name: str, statistics: tuple[Tensor, Tensor] | None, loss: _Share
) -> Interval:
    if not _computes_as_its_kind(module):
        raise _unsupported(f"layer {name!r} ({type(module).__name__}), which has hooks or a forward of its own,")
    if isinstance(module, nn.Conv2d) and module.padding_mode == "zeros":
        return _linear(
            x,
            module.weight,
            module.bias,
            lambda x, w, b: F.conv2d(x, w, b, module.stride, module.padding, module.dilation, module.groups),
            loss,
        )
    if isinstance(module, nn.Linear):
        return _linear(x, module.weight, module.bias, F.linear, loss)
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        scale, shift = batch_norm_line(module, x.lower.dim(), statistics)
        scaled = _scale(x, scale)
        return _widened(Interval(scaled.lower + shift, scaled.upper + shift), loss(2), _sizes(scaled) + shift.abs())
    if isinstance(module, nn.Dropout | nn.Dropout2d):
        return x
    if isinstance(module, _MONOTONE_MODULES) and getattr(module, "divisor_override", None) is None:
        return _monotone(module, (x,), {}, loss, f"layer {name!r} ({type(module).__name__})")
    raise _unsupported(f"layer {name!r} ({type(module).__name__})")


def _computes_as_its_kind(module: nn.Module) -> bool:
    """Whether a module has torch's own forward and no hooks around it."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return not hooks and "forward" not in vars(module) and type(module).forward.__module__.startswith("torch.nn.")


def _monotone(function: Callable[..., Any], args: Any, kwargs: Any, loss: _Share, what: str) -> Interval:
    """A function that does not fall in any of its intervals, and only moves, adds, averages or chooses values."""
    ends = [function(*_end(args, end), **{k: _end(a, end) for k, a in kwargs.items()}) for end in (_lower, _upper)]
    if not all(isinstance(end, Tensor) and end.is_floating_point() for end in ends):
        raise _unsupported(f"{what}, which does not give a tensor of numbers,")
    result = Interval(*ends)
    flat = _intervals(args) + _intervals(kwargs.values())
    share_of = loss(flat[0].lower[0].numel())
    if not share_of:
        return result
    sizes = function(*_end(args, _sizes), **{k: _end(a, _sizes) for k, a in kwargs.items()})
    return _widened(result, share_of, torch.maximum(sizes.abs(), _sizes(result)))


def _linear(
    x: Interval,
    weight: Tensor,
    bias: Tensor | None,
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    loss: _Share,
) -> Interval:
    middle, half = (x.lower + x.upper) / 2, (x.upper - x.lower) / 2
    center = apply(middle, weight, bias)
    share_of = loss(weight[0].numel())
    if not share_of:
        radius = apply(half, weight.abs(), None)
        return Interval(center - radius, center + radius)
    radius = apply(half + share_of * (middle.abs() + half), weight.abs(), None) + share_of * center.abs()
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


def _call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], loss: _Share) -> Any:
    """A function or method that may have intervals among its arguments."""
    flat, function = _intervals(args) + _intervals(kwargs.values()), _as_function(target)
    if not flat:
        return function(*args, **kwargs)
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if target in _ASKED_METHODS or (target is getattr and len(args) == 2 and args[1] in _ASKED_ATTRIBUTES):
        return function(*_end(args, _lower), **kwargs)
    if target is getattr:
        raise _unsupported(f"the attribute {args[1]!r}")
    if kwargs.get("alpha", 1) != 1:
        raise _unsupported(f"operation {name!r} with a factor alpha")
    target = OUT_OF_PLACE.get(target, target)
    sub, mul, div, neg = (target in known for known in (_SUB, _MUL, _DIV, _NEG))
    if (sub or mul or div or neg) and kwargs.keys() - {"alpha"}:  # other=…, rounding_mode=…
        raise _unsupported(f"operation {name!r} with named arguments")
    if target in DROPOUT:
        return flat[0]
    if sub and len(args) == 2:
        first, second = (a if isinstance(a, Interval) else Interval(a, a) for a in args)
        result = Interval(first.lower - second.upper, first.upper - second.lower)
        parts = [_sizes(a) if isinstance(a, Interval) else abs(a) for a in args]
        return _widened(result, loss(2), parts[0] + parts[1])
    if target in _MONOTONE_CALLS and not _altered(target, args, kwargs):
        return _monotone(_as_function(target), args, kwargs, loss, f"operation {name!r}")
    if (mul or div or neg) and len(flat) == 1:
        if neg:
            return Interval(-flat[0].upper, -flat[0].lower)
        constant = args[1] if isinstance(args[0], Interval) else args[0]
        if mul:
            return _widened(_scale(flat[0], constant), loss(1))
        if isinstance(args[0], Interval):
            return _widened(_sorted(flat[0].lower / constant, flat[0].upper / constant), loss(1))
    raise _unsupported(f"operation {name!r}")


def _altered(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether there are arguments that make something else of a monotone function."""
    if any(kwargs.get(name) not in (None, False) for name in _ALTERING) or any(
        isinstance(a, torch.dtype) for a in args
    ):
        return True
    if target in (torch.add, "add") and len(args) > 2:
        return True  # add(x, alpha, y), an old way to write x + alpha·y
    return target in (F.avg_pool2d, F.max_pool2d, torch.max_pool2d) and len(args) > 6


def _intervals(values: Any) -> list[Interval]:
    found = []
    for value in values:
        if isinstance(value, Interval):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(_intervals(value))
    return found


def _lower(x: Interval) -> Tensor:
    return x.lower


def _upper(x: Interval) -> Tensor:
    return x.upper


def _end(value: Any, of: Callable[[Interval], Tensor]) -> Any:
    """A value with a tensor in place of each interval in it."""
    if isinstance(value, Interval):
        return of(value)
    if isinstance(value, list):  # torch.fx has a kind of its own
        return [_end(v, of) for v in value]
    return tuple(_end(v, of) for v in value) if type(value) is tuple else value


def _unsupported(what: str) -> LingraftError:
    return LingraftError(
        f"cannot bound {what} by intervals. Train without them, or write the model with convolutions, linear layers,"
        " batch norm, pooling, sums and reshaping."
    )
