"""Interval bounds of every site and of the logits, as functions of the weights.

Only what is known is bounded: layers, functions, methods and attributes that are listed here, by themselves and not by
their names. Anything else is an error, since a bound of it would be a guess.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.model.activations.convex import RECIPROCAL, ROOT
from lingraft.model.in_place import NUMBERS, title
from lingraft.model.operations import KNOWN, Operation, call_of
from lingraft.model.operations.functions import axis_of_softmax
from lingraft.model.plain import FOLDED
from lingraft.model.sites import Site
from lingraft.solver.intervals import share
from lingraft.training.differentiable.graph import BoundedGraph, Statistics, graph_of

#: What a tensor says of itself without telling its values.
_ASKED_METHODS = frozenset({"dim", "numel", "size"})


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
    #: bounds of what comes out of each site
    outputs: dict[str, Interval]


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
    propagation = Propagation(graph, statistics, share if rounded else None)
    last = propagation.run(Interval(lower, upper))
    return IntervalBounds(propagation.found, propagation.first or last, last, propagation.outputs)


class Propagation(fx.Interpreter):
    """Runs a graph on intervals up to the last linear layer and keeps what goes into each site."""

    def __init__(self, graph: BoundedGraph, statistics: Statistics | None = None, loss: "_Share | None" = None):
        super().__init__(graph.module)
        self.sites = graph.sites
        self.statistics, self.loss = statistics or {}, loss or _nothing
        self.skipped = graph.last if graph.last_layer is not None else None
        self.first: Interval | None = None
        self.found: dict[str, Interval] = {}
        self.outputs: dict[str, Interval] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in ("call_module", "call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        inputs: Any = args[0] if args else kwargs.get("input")
        if n in self.sites:
            name = self.sites[n].name
            self.found[name] = inputs
            self.outputs[name] = _site(inputs, self.sites[n], self.loss)
            return self.outputs[name]
        if n is self.skipped:
            return inputs
        if not _intervals(args) and not _intervals(kwargs.values()):
            return super().run_node(n)
        if n.target in _ASKED_METHODS or (n.target is getattr and args[1] in NUMBERS):
            return _as_function(n.target)(*_end(args, _lower), **kwargs)
        return self._operation(n)

    def _operation(self, n: fx.Node) -> Any:
        """A call of an operation with intervals among its arguments."""
        what = title(n, self.module)
        call = call_of(n, self.fetch_attr, what)
        if call is None:
            raise _unsupported(what)
        if n.op == "call_module" and not _computes_as_its_kind(self.fetch_attr(str(n.target))):
            raise _unsupported(f"{what}, which has hooks or a forward of its own,")
        args = call.arguments(self.env.__getitem__)
        name = call.operation.name
        if call.operation.rank is not None:
            call.operation.require_rank(what, args[0].lower.shape)
        if self.first is None and call.operation.kind == "weighs" and name != "batch norm":
            self.first = _intervals(args)[0]
        if name == "batch norm":
            if n.op != "call_module" and call.bound.arguments["training"]:
                raise _unsupported(f"{what}, which normalizes by the batch,")
            return _batch_norm(args, self.statistics.get(n), self.loss)
        return RULES[name](call.operation, args, self.loss, what)


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
    result = _sorted(grafted(x.lower), grafted(x.upper))
    if activation.interval is not None:  # what is not grafted may be lower or higher in between than at the ends
        low, high = activation.interval(*x)
        result = Interval(torch.where(grafted.mask, result.lower, low), torch.where(grafted.mask, result.upper, high))
    share_of = loss(1)
    if not share_of:
        return result
    slope, intercept = grafted.line()
    return _widened(result, share_of, torch.where(grafted.mask, slope.abs() * _sizes(x) + intercept.abs(), 0.0))


def _sorted(one: Tensor, other: Tensor) -> Interval:
    return Interval(torch.minimum(one, other), torch.maximum(one, other))


def _computes_as_its_kind(module: nn.Module) -> bool:
    """Whether a module has torch's own forward and no hooks around it."""
    hooks = module._forward_hooks or not set(map(type, module._forward_pre_hooks.values())) <= FOLDED
    return not hooks and "forward" not in vars(module) and type(module).forward.__module__.startswith("torch.nn.")


def _monotone(operation: Operation, args: Any, loss: _Share, what: str) -> Any:
    """What does not fall in any of its intervals, and only moves, averages or chooses values."""
    lower, upper = (operation.compute(*_end(args, end)) for end in (_lower, _upper))
    if isinstance(lower, tuple | list):  # values that are only moved round nothing
        return tuple(Interval(*ends) for ends in zip(lower, upper, strict=True))
    result = Interval(lower, upper)
    share_of = loss(_intervals(args)[0].lower[0].numel())
    if not share_of:
        return result
    sizes = operation.compute(*_end(args, _sizes))
    return _widened(result, share_of, torch.maximum(sizes.abs(), _sizes(result)))


def _linear(operation: Operation, args: Any, loss: "_Share", what: str) -> Interval:
    """What weights make of an interval: of its middle what they make of any value, of its radius their sizes."""
    x, weight, *rest = args
    if operation.name == "matrix product" and isinstance(x, Interval) and isinstance(weight, Interval):
        return _product_of_values(x, weight, loss)
    if operation.name == "matrix product" and not isinstance(x, Interval):
        x, weight = weight, x
    if isinstance(weight, Interval) or not isinstance(x, Interval) or any(isinstance(r, Interval) for r in rest):
        raise _unsupported(f"{what}, whose weights depend on the image,")

    def apply(value: Tensor, weights: Tensor, *bias: Any) -> Any:
        if operation.name == "matrix product":
            return operation.compute(*((value, weights) if args[0] is x else (weights, value)))
        return operation.compute(value, weights, *bias, *rest[1:])

    middle, half = (x.lower + x.upper) / 2, (x.upper - x.lower) / 2
    center = apply(middle, weight, *rest[:1])
    share_of = loss(weight.numel() if operation.name != "convolution" else weight[0].numel())
    if not share_of:
        radius = apply(half, weight.abs(), None)
        return Interval(center - radius, center + radius)
    radius = apply(half + share_of * (middle.abs() + half), weight.abs(), None) + share_of * center.abs()
    return Interval(center - radius, center + radius)


def _product_of_values(one: Interval, other: Interval, loss: "_Share") -> Interval:
    """With middles m and radii r, the product is m·m' but for |m|·r' + r·|m'| + r·r'."""
    (middle, half), (other_middle, other_half) = (
        ((x.lower + x.upper) / 2, (x.upper - x.lower) / 2) for x in (one, other)
    )
    center = middle @ other_middle
    radius = middle.abs() @ other_half + half @ (other_middle.abs() + other_half)
    share_of = loss(4 * one.lower.shape[-1])
    if share_of:
        radius = radius + share_of * (_sizes(one) @ _sizes(other))
    return Interval(center - radius, center + radius)


def _bent(operation: Operation, args: Any, loss: "_Share", what: str) -> Interval:
    """What the function's record says of it."""
    (x,) = args
    assert operation.bend is not None
    return _widened(Interval(*operation.bend.between(*x)), loss(1))


def _power(operation: Operation, args: Any, loss: "_Share", what: str) -> Interval:
    """A whole power of the ends, and 0 where an even one has its least value in between."""
    x, exponent = args
    number = exponent.item() if isinstance(exponent, Tensor) and exponent.numel() == 1 else exponent
    if not isinstance(x, Interval) or not isinstance(number, int | float):
        raise _unsupported(f"{what} with an exponent that is no fixed number")
    size = abs(number)
    if size == 0.5:
        result = Interval(*ROOT.between(*x))
    elif size == int(size) and size >= 1:
        result = _sorted(x.lower ** int(size), x.upper ** int(size))
        if size % 2 == 0:
            across = (x.lower < 0) & (x.upper > 0)
            result = Interval(torch.where(across, 0.0, result.lower), result.upper)
    else:
        raise _unsupported(f"{what} with the exponent {number}")
    result = _widened(result, loss(int(size) + 1))
    return result if number > 0 else _widened(Interval(*RECIPROCAL.between(*result)), loss(1))


def _softmax(operation: Operation, args: Any, loss: "_Share", what: str) -> Interval:
    """exp(x_i) as a share: least with x_i at its lower end and all others at their upper ones, and the other way."""
    x, dim, *_ = args
    axis = axis_of_softmax(dim, x.lower.dim())
    if axis == 0:
        raise _unsupported(f"{what}, which is over the batch,")
    low, high = (end.movedim(axis, -1) for end in x)
    own = torch.eye(low.shape[-1], dtype=torch.bool, device=low.device)
    ends = []
    for mine, others in ((low, high), (high, low)):
        apart = torch.where(own, torch.zeros_like(own, dtype=low.dtype), others.unsqueeze(-2) - mine.unsqueeze(-1))
        ends.append((-apart.logsumexp(-1)).exp().movedim(-1, axis))
    sizes = 1 + _sizes(x).amax(axis, keepdim=True)  # what rounding of x_j − x_i changes is a share of these
    return _widened(Interval(*ends), loss(low.shape[-1]), sizes.expand_as(x.lower))


def _scale(x: Interval, factor: Tensor | float) -> Interval:
    return _sorted(x.lower * factor, x.upper * factor)


def batch_norm_line(
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    dimensions: int,
) -> tuple[Tensor, Tensor]:
    """Scale and shift of batch norm by these statistics, to broadcast over (N, C, …)."""
    if mean is None or variance is None:
        raise LingraftError("batch norm without running statistics has no bounds. Use track_running_stats=True.")
    scale = (variance + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    shift = shift if bias is None else shift + bias
    shape = (1, -1) + (1,) * (dimensions - 2)
    return scale.view(shape), shift.view(shape)


def _batch_norm(args: Any, statistics: tuple[Tensor, Tensor] | None, loss: "_Share") -> Interval:
    x, mean, variance, weight, bias, _, _, eps = args
    mean, variance = statistics or (mean, variance)
    scale, shift = batch_norm_line(mean, variance, weight, bias, eps, x.lower.dim())
    scaled = _scale(x, scale)
    return _widened(Interval(scaled.lower + shift, scaled.upper + shift), loss(2), _sizes(scaled) + shift.abs())


def _same(operation: Operation, args: Any, loss: "_Share", what: str) -> Interval:
    return _intervals(args)[0]


def _added(operation: Operation, args: Any, loss: "_Share", what: str) -> Interval:
    first, second, alpha = args
    if not isinstance(alpha, int | float):
        raise _unsupported(f"{what} with a factor that is no number")
    factor = alpha if operation.name == "sum of two" else -alpha
    scaled = _scale(second, factor) if isinstance(second, Interval) else second * factor
    ends = [first if not isinstance(first, Interval) else first[i] for i in (0, 1)]
    others = [scaled if not isinstance(scaled, Interval) else scaled[i] for i in (0, 1)]
    result = Interval(ends[0] + others[0], ends[1] + others[1])
    sizes = [_sizes(part) if isinstance(part, Interval) else abs(part) for part in (first, scaled)]
    return _widened(result, loss(2), sizes[0] + sizes[1])


def _multiplied(operation: Operation, args: Any, loss: "_Share", what: str) -> Interval:
    if operation.name == "negation":
        (x,) = args
        return Interval(-x.upper, -x.lower)
    first, second = args
    if operation.name == "quotient" and isinstance(second, Interval):
        second = _widened(Interval(*RECIPROCAL.between(*second)), loss(1))
    elif operation.name == "quotient":
        return _widened(_sorted(first.lower / second, first.upper / second), loss(1))
    if not (isinstance(first, Interval) and isinstance(second, Interval)):
        x, factor = (first, second) if isinstance(first, Interval) else (second, first)
        return _widened(_scale(x, factor), loss(1))
    corners = torch.stack([a * b for a in first for b in second])
    return _widened(Interval(corners.amin(0), corners.amax(0)), loss(1))


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


_BY_KIND = {
    "same": _same, "moves": _monotone, "averages": _monotone, "chooses": _monotone, "weighs": _linear,
    "adds": _added, "multiplies": _multiplied, "bends": _bent, "powers": _power, "softens": _softmax,
}  # fmt: skip
#: name of an operation → what it makes of intervals: (operation, arguments, loss, title) → interval
RULES: dict[str, Callable[..., Any]] = {name: _BY_KIND[record.kind] for name, record in KNOWN.items()}
