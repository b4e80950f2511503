"""Margins attacked in the box of a hidden layer: the second half of TAPS, whose first half is intervals.

Paper: Mao et al., "Connecting certified and adversarial training", NeurIPS 2023.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from lingraft.attack.batch_noise import noise_like
from lingraft.errors import LingraftError
from lingraft.training.differentiable.graph import BoundedGraph, Statistics
from lingraft.training.differentiable.intervals import Interval, IntervalBounds, batch_norm_line

#: The part of a side of the box, next to an end, in which a point passes gradients on to that end: the authors' value.
REACH = 0.5


def attacked_margins(
    graph: BoundedGraph,
    found: IntervalBounds,
    box: Interval,
    labels: Tensor,
    sites: int,
    generator: torch.Generator,
    *,
    steps: int = 1,
    statistics: Statistics | None = None,
) -> Tensor:
    """The smallest margins (N, classes) that PGD finds in the box before the last `sites` activations.

    That box is what intervals (`found`, over `box`) say of the output of the activation before them; with all sites it
    is `box` itself. For each class a point of its own is sought, from a random start, so what comes out is neither a
    lower bound of the margins nor the margins of an image. Differentiable in the weights: in those behind the box
    directly, in those before it through the ends of the box, see `connected`. 0 at the labels themselves.
    """
    cut = _cut(graph, sites)
    inner = box if cut.op == "placeholder" else found.outputs[graph.sites[cut].name]
    rest = _Rest(graph, cut, statistics or {})
    lower, upper = (end.detach().unsqueeze(1) for end in inner)
    with torch.no_grad():
        classes = rest.run_from(lower[:, 0]).shape[1]
    shape = (len(labels), classes, *lower.shape[2:])
    noise = noise_like(lower.expand(shape), lambda empty: empty.uniform_(0, 1, generator=generator))
    points = lower + (upper - lower) * noise
    for _ in range(steps):
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(_margins(rest, points, labels).sum(), points)
        # together the steps cross the box twice; a single one ends in a corner
        points = torch.addcmul(points.detach(), gradient.sign(), (lower - upper) * (2 / steps))
        points = torch.minimum(torch.maximum(points, lower), upper)
    return _margins(rest, connected(points.detach(), Interval(*(end.unsqueeze(1) for end in inner))), labels)


def connected(points: Tensor, box: Interval) -> Tensor:
    """The same values, but gradients pass on to the ends of the box: the rectified linear connector of Mao et al.

    A point at an end passes its gradient on to it whole, one that is `REACH` of the width away, or farther, not at all.
    Where the box has no width each end gets half.
    """
    lower, upper = (end.detach() for end in box)
    width = upper - lower
    flat = width <= 0
    reach = torch.where(flat, 1.0, REACH * width)
    below, above = (torch.where(flat, 0.5, (1 - gap / reach).clamp(min=0)) for gap in (points - lower, upper - points))
    return points + below * (box.lower - lower) + above * (box.upper - upper)


def _margins(rest: "_Rest", points: Tensor, labels: Tensor) -> Tensor:
    """logit[label] − logit[k] at point k of each image: (N, classes, *shape) → (N, classes)."""
    logits = rest.run_from(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    own = logits.gather(2, labels.view(-1, 1, 1).expand(-1, logits.shape[1], 1)).squeeze(2)
    return own - torch.diagonal(logits, dim1=1, dim2=2)


def _cut(graph: BoundedGraph, sites: int) -> fx.Node:
    """What gives the values of the box that the last `sites` activations start from."""
    inputs = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
    chain: Sequence[fx.Node] = [inputs[0], *graph.sites]
    if not 0 <= sites < len(chain):
        raise LingraftError(
            f"cannot attack behind the last {sites} activations: the network has {len(chain) - 1}."
            " Choose fewer (--attacked-sites)."
        )
    return chain[len(chain) - 1 - sites]


class _Rest(fx.Interpreter):
    """What a model does behind one of its nodes; batch norm is that of `statistics`, dropout is left out."""

    def __init__(self, graph: BoundedGraph, cut: fx.Node, statistics: Statistics):
        super().__init__(graph.module, garbage_collect_values=False)
        self.cut, self.statistics, self.nodes = cut, statistics, list[fx.Node]()
        of_image, reached = set[fx.Node](), {cut}
        for node in graph.module.graph.nodes:
            inputs = of_image.intersection(node.all_input_nodes)
            if inputs or node.op == "placeholder":
                of_image.add(node)
            if node is cut or (node in of_image and not reached & inputs):
                continue
            if inputs - reached:
                raise LingraftError(
                    f"cannot attack behind {cut.name!r} alone: {node.name!r} has another way from the image, such as a"
                    " shortcut. Choose another number of activations (--attacked-sites)."
                )
            self.nodes.append(node)
            if inputs:
                reached.add(node)

    def run_from(self, values: Tensor) -> Tensor:
        """The logits (N, classes) where the node has `values`, (N, *shape)."""
        self.env = {self.cut: values}
        result: Any = None
        for node in self.nodes:
            result = self.env[node] = self.run_node(node)
        assert isinstance(result, Tensor)
        return result

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_module":
            module = self.fetch_attr(str(n.target))
            (x, *_), _ = self.fetch_args_kwargs_from_env(n)
            if n in self.statistics:
                mean, variance = self.statistics[n]
                scale, shift = batch_norm_line(mean, variance, module.weight, module.bias, module.eps, x.dim())
                return x * scale + shift
            if isinstance(module, torch.nn.modules.dropout._DropoutNd):
                return x
        return super().run_node(n)
