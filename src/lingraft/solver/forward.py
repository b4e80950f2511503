"""Linear functions of a few inputs below and above every value of a network, from the inputs on, for many boxes.

A row on its way back is about one neuron; here all neurons of a layer go forward together, each between two functions
of the d inputs that have any width. That is looser, since what a neuron has in common with its neighbours is forgotten
at every layer, but costs as much as 2·(d + 1) images, however many neurons are open.

Inputs are written as center + radius·t with t between −1 and 1, so that the size of a function over its box is the sum
of its coefficients' sizes. What rounding takes is put into its constant at every step.
"""

from dataclasses import replace

import torch
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.intervals import UNDERFLOW, fan_in, share
from lingraft.solver.network import Network
from lingraft.solver.nodes import Convolution, Dense, Gather, Input, Node, Product, Scale, Site, sources
from lingraft.solver.products import Planes

#: Lower and upper functions, (B, 1 + d, *shape) each: constants first, then the coefficients of the inputs that move.
Pair = tuple[Tensor, Tensor]


class Forward:
    """Functions below and above the values of all nodes over B boxes center ± radius (B, *input's inner shape)."""

    def __init__(self, network: Network, center: Tensor, radius: Tensor):
        self.network, self.center, self.radius = network, center, radius
        source = network.nodes[0]
        assert isinstance(source, Input)
        #: numbers of the inputs that have a width in any box; one of those that are known is a part of the constants
        self.moving = radius.flatten(1)[:, : source.size - source.known].any(0).nonzero().flatten()
        #: how many nodes have been passed, and the functions of those that are still needed
        self.passed = 0
        self.pairs: dict[int, Pair] = {}
        self.last_use = {j: i for i, node in enumerate(network.nodes) for j in sources(network.nodes, node)}

    def price(self, node: int) -> float:
        """About how many products it takes for one box to get to a node from where one is."""
        sizes = (n.size * fan_in(n) for n in self.network.nodes[self.passed : node + 1] if _is_linear(n))
        return (2 * len(self.moving) + 3) * float(sum(sizes))

    def pass_to(self, node: int, lines: dict[int, Lines], planes: dict[int, Planes]) -> None:
        """Go on to a node; the lines of all sites and the planes of all products before it must be there."""
        for i in range(self.passed, node + 1):
            here = self.network.nodes[i]
            if isinstance(here, Input):
                self.pairs[i] = self._inputs()
            elif isinstance(here, Site):
                if i in lines:
                    self.pairs[i] = _through_lines(self.pairs[here.inputs[0]], lines[i])
            elif isinstance(here, Product):
                factors = (self.pairs[j] for j in here.factors(self.network.nodes))
                others = (self.pairs[j] for j in here.inputs[2:])
                self.pairs[i] = _through_planes(planes[i], *factors, *others)
            elif all(j in self.pairs for j in here.inputs):  # else it serves the squares of a product
                self.pairs[i] = _through_linear(here, [self.pairs[j] for j in here.inputs])
            for j in sources(self.network.nodes, here):
                if self.last_use[j] == i:
                    self.pairs.pop(j, None)
        self.passed = max(self.passed, node + 1)

    def bounds(self, node: int) -> tuple[Tensor, Tensor]:
        """Bounds (B, *shape) of the values of the node that was passed last, or is still needed."""
        lower, upper = self.pairs[node]
        rounding = share(lower.shape[1])
        low, high = (end[:, 1:].abs().sum(1) for end in (lower, upper))
        low, high = lower[:, 0] - low - rounding * _size(lower), upper[:, 0] + high + rounding * _size(upper)
        return low, high

    def moved(self, node: int, box: Tensor, value: Tensor) -> Tensor:
        """How far (P, d) each moving input moves single values (P,) of a node in their boxes (P,), about."""
        below, above = (end.flatten(2)[box, 1:, value].abs() for end in self.pairs[node])
        return below + above

    def _inputs(self) -> Pair:
        count, d = len(self.center), len(self.moving)
        form = self.center.new_zeros(count, 1 + d, self.center[0].numel())
        form[:, 0] = self.center.flatten(1)
        index = torch.arange(d, device=form.device)
        form[:, 1 + index, self.moving] = self.radius.flatten(1)[:, self.moving]
        form = form.view(count, 1 + d, *self.center.shape[1:])
        still = self.radius.flatten(1).clone()
        still[:, self.moving] = 0.0
        return _widened(form, form, share(1) * _size(form) + still.view_as(self.radius))


def _is_linear(node: Node) -> bool:
    return not isinstance(node, Input | Site)


def _size(form: Tensor) -> Tensor:
    """How large (B, *shape) functions (B, 1 + d, *shape) can be, constants and coefficients taken by themselves."""
    return form.abs().sum(1)


def _widened(lower: Tensor, upper: Tensor, loss: Tensor) -> Pair:
    """The functions with their constants moved outwards by a loss (B, *shape)."""
    lower, upper = lower.clone(), upper.clone()
    lower[:, 0] -= loss + UNDERFLOW
    upper[:, 0] += loss + UNDERFLOW
    return lower, upper


def _through_linear(node: Node, inputs: list[Pair]) -> Pair:
    """W·x + b: where a weight is negative the lower function needs the upper one, so W·middle − |W|·half distance."""
    count, terms = inputs[0][0].shape[:2]
    if isinstance(node, Gather):  # nothing is rounded
        lower, upper = (node.forward(end.flatten(0, 1)).unflatten(0, (count, terms)) for end in inputs[0])
        return lower, upper
    if terms > 1 and not any(bool(end[:, 1:].any()) for pair in inputs for end in pair):  # no input moves it
        still = _through_linear(node, [(low[:, :1], high[:, :1]) for low, high in inputs])
        lower, upper = (torch.cat([end, end.new_zeros(count, terms - 1, *end.shape[2:])], 1) for end in still)
        return lower, upper
    plain = replace(node, bias=torch.zeros_like(node.bias)) if isinstance(node, Convolution | Dense | Scale) else node
    middle = plain.forward(*[((low + high) / 2).flatten(0, 1) for low, high in inputs]).unflatten(0, (count, terms))
    halves = [(high - low) / 2 for low, high in inputs]
    lower = upper = middle
    if any(bool(half.any()) for half in halves):
        half = plain.spread(*[h.flatten(0, 1) for h in halves]).unflatten(0, (count, terms))
        lower, upper = middle - half, middle + half
    size = plain.spread(*[_size(torch.maximum(low.abs(), high.abs())) for low, high in inputs])
    bias = node.forward(*[torch.zeros_like(low[:1, 0]) for low, _ in inputs])
    # middle and half distance are no larger than the size, and each is summed once
    lower, upper = _widened(lower, upper, 4 * share(fan_in(node)) * (size + bias.abs()))
    lower[:, 0] += bias
    upper[:, 0] += bias
    return lower, upper


def _weighted(weight: Tensor, pair: Pair) -> Pair:
    """Functions below and above weight·value, for a weight (B, *shape)."""
    lower, upper = pair
    positive, negative = weight.clamp(min=0)[:, None], weight.clamp(max=0)[:, None]
    return positive * lower + negative * upper, positive * upper + negative * lower


def _through_lines(pair: Pair, lines: Lines) -> Pair:
    """Functions below and above an activation between lines (B, *shape)."""
    below, above = _weighted(lines.lower_slope, pair)[0], _weighted(lines.upper_slope, pair)[1]
    size = torch.maximum(_size(pair[0]), _size(pair[1]))
    loss = share(2) * (
        torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs()) * 2 * size
        + torch.maximum(lines.lower_intercept.abs(), lines.upper_intercept.abs())
    )
    lower, upper = _widened(below, above, loss)
    lower[:, 0] += lines.lower_intercept
    upper[:, 0] += lines.upper_intercept
    return lower, upper


def _through_planes(planes: Planes, first: Pair, second: Pair, one: Pair, other: Pair) -> Pair:
    """Functions below and above a product between planes, plus two values."""
    parts = [_weighted(planes.of_first, first), _weighted(planes.of_second, second), one, other]
    lower, upper = (torch.stack([part[side] for part in parts]).sum(0) for side in (0, 1))
    sizes = [torch.maximum(_size(low), _size(high)) for low, high in parts]
    loss = share(8) * (torch.stack(sizes).sum(0) + planes.constant.abs() + planes.gap)
    lower, upper = _widened(lower, upper, loss + planes.gap)
    lower[:, 0] += planes.constant
    upper[:, 0] += planes.constant
    return lower, upper
