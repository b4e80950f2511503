"""CROWN with intermediate bounds from intervals (CROWN-IBP), as a function of the weights.

Paper: Zhang et al., "Towards stable and efficient training of verifiably robust neural networks", ICLR 2020.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from lingraft.errors import LingraftError
from lingraft.model.activations import Lines
from lingraft.model.in_place import is_number, title
from lingraft.model.operations import call_of
from lingraft.training.differentiable.graph import BoundedGraph, Statistics
from lingraft.training.differentiable.intervals import Interval, IntervalBounds, batch_norm_line
from lingraft.training.differentiable.margins import margin_intervals

#: Intervals of margins narrower than this get a tangent of exp instead of a chord, whose slope would be all rounding.
_NARROW = 1e-3


def crown_lower(
    graph: BoundedGraph, found: IntervalBounds, box: Interval, objective: Tensor, statistics: Statistics | None = None
) -> Tensor:
    """Lower bounds (N,) of Σₖ objective[:, k] · logit[k] over the images of a box; differentiable in the weights.

    `found` are the interval bounds on that box, from the same `statistics`; objective has shape (N, classes). Each
    activation is replaced by the line that makes the sum smaller, from the last to the first; the rest is affine. So
    the sum becomes a linear function of the image, whose minimum over the box is known. The pass back through an affine
    part is its own vector-Jacobian product, whatever operations it consists of.
    """
    graded = torch.is_grad_enabled()
    with torch.enable_grad():
        segments = _Segments(graph, statistics or {})
        image = torch.zeros_like(box.lower).requires_grad_()
        logits = segments.run(image)
        leaves = [image, *(segment.output for segment in segments.found)]
        pending: list[Tensor | None] = [None] * len(leaves)
        constant = (objective * logits).sum(1)
        _pass_back(logits, objective, leaves, pending, graded)
        for i in range(len(segments.found), 0, -1):
            node, before, _ = segments.found[i - 1]
            rows = pending[i]
            if rows is None:  # nothing after this site depends on it
                continue
            lines = _lines(graph, node, found.sites[graph.sites[node].name])
            positive, negative = rows.clamp(min=0), rows.clamp(max=0)
            added = positive * lines.lower_intercept + negative * lines.upper_intercept
            rows = positive * lines.lower_slope + negative * lines.upper_slope
            constant = constant + (added + rows * before).flatten(1).sum(1)
            _pass_back(before, rows, leaves[:i], pending, graded)
        rows = torch.zeros_like(image) if pending[0] is None else pending[0]
        center, radius = (box.upper + box.lower) / 2, (box.upper - box.lower) / 2
        bound = constant + (rows * center - rows.abs() * radius).flatten(1).sum(1)
    return bound if graded else bound.detach()


def crown_cross_entropy(
    graph: BoundedGraph, found: IntervalBounds, box: Interval, labels: Tensor, statistics: Statistics | None = None
) -> Tensor:
    """Upper bounds (N,) of the cross entropy over the images of a box, by one pass back instead of one a class.

    Loss fusion (Xu et al., "Automatic perturbation analysis for scalable certified robustness and beyond", NeurIPS
    2020): the cross entropy is log Σₖ exp(tₖ) with tₖ = logit[k] − logit[label]. Between the interval bounds of tₖ the
    exponential lies below its chord; the sum of the chords is linear in the logits, and CROWN bounds it.
    """
    low, high = (-end for end in reversed(margin_intervals(graph, found.last, labels)))
    shift = high.amax(1, keepdim=True).detach()  # exp of at most 0; any number gives the same bound
    at_low, at_high = (low - shift).exp(), (high - shift).exp()
    width = high - low
    narrow = width < _NARROW
    slope = torch.where(narrow, at_low, (at_high - at_low) / torch.where(narrow, 1.0, width))
    intercept = at_high - slope * high
    objective = slope.scatter_add(1, labels.unsqueeze(1), -slope.sum(1, keepdim=True))
    total = intercept.sum(1) - crown_lower(graph, found, box, -objective, statistics)
    return total.clamp(min=torch.finfo(total.dtype).tiny).log() + shift.squeeze(1)


def _lines(graph: BoundedGraph, node: fx.Node, x: Interval) -> Lines:
    """A grafted neuron's own line on both sides, CROWN's lines elsewhere; to broadcast over (N, *neurons)."""
    site = graph.sites[node]
    pieces = site.activation.pieces
    plain = pieces is not None and pieces.is_relu and isinstance(pieces.slope, float) and 0 <= pieces.slope <= 1
    lines = relu_lines(x, float(pieces.slope)) if pieces is not None and plain else site.activation.lines(*x)
    grafted = site.grafted
    if grafted is None or not grafted.grafted:
        return lines
    own = grafted.line()
    return Lines(*(torch.where(grafted.mask, a, b) for a, b in zip((*own, *own), lines, strict=True)))


def relu_lines(x: Interval, negative_slope: float = 0.0) -> Lines:
    """The chord above; below, the steeper or the flatter piece, whichever leaves less area; both exact if stable."""
    lower, upper = x
    on, off = lower >= 0, upper <= 0
    stable = on | off
    width = torch.where(stable, 1.0, upper - lower)  # never 0, whose gradient would be NaN
    flat = torch.full_like(lower, negative_slope)
    exact = torch.where(on, 1.0, flat)
    slope = torch.where(stable, exact, (upper - negative_slope * lower) / width)
    intercept = torch.where(stable, 0.0, upper * (1 - slope))
    below = torch.where(stable, exact, torch.where(upper > -lower, 1.0, flat))
    return Lines(below, torch.zeros_like(below), slope, intercept)


class _Segment(NamedTuple):
    """A site: what goes into it, as an affine function of the image and earlier outputs, and its output, a leaf."""

    node: fx.Node
    before: Tensor
    output: Tensor


class _Segments(fx.Interpreter):
    """Runs a graph at 0 with the outputs of the sites cut off: what is left between them is affine.

    That it is, intervals have seen: they know no others but those that are refused here.
    """

    def __init__(self, graph: BoundedGraph, statistics: Statistics):
        super().__init__(graph.module)
        self.sites = graph.sites
        self.statistics = statistics
        self.found: list[_Segment] = []
        self.depends: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "placeholder":
            self.depends.add(n)
        if n.op not in ("call_module", "call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n in self.sites:
            inputs = args[0] if args else kwargs["input"]
            result = torch.zeros_like(inputs, requires_grad=True)
            self.found.append(_Segment(n, inputs, result))
            self.depends.add(n)
            return result
        values = [node for node in n.all_input_nodes if node in self.depends]
        call = None if is_number(n) or not values else call_of(n, self.fetch_attr, title(n, self.module))
        if call is None:  # a size, or something that does not depend on the image
            return super().run_node(n)
        self.depends.add(n)
        args = call.arguments(self.env.__getitem__)
        name, kind = call.operation.name, call.operation.kind
        if name == "batch norm":
            x, mean, variance, weight, bias, _, _, eps = args
            mean, variance = self.statistics.get(n, (mean, variance))
            scale, shift = batch_norm_line(mean, variance, weight, bias, eps, x.dim())
            return x * scale + shift
        if kind == "same":
            return args[0]
        given = [a in self.depends for a in call.bound.args if isinstance(a, fx.Node)]
        by_value = name == "quotient" and call.bound.args[1] in self.depends
        both = kind in ("multiplies", "weighs") and sum(given) > 1
        if kind in ("chooses", "bends", "powers", "softens") or both or by_value:
            raise LingraftError(f"CROWN bounds for training cannot pass {name}. Use intervals.")
        return call.operation.compute(*args)


def _pass_back(
    value: Tensor, rows: Tensor, leaves: list[Tensor], pending: list[Tensor | None], differentiable: bool
) -> None:
    """Add to `pending` what rows over an affine `value` are over its leaves."""
    parts = torch.autograd.grad(value, leaves, rows, create_graph=differentiable, retain_graph=True, allow_unused=True)
    for i, part in enumerate(parts):
        before = pending[i]
        if part is not None:
            pending[i] = part if before is None else before + part
