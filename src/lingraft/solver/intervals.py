"""Interval arithmetic over a network: the cheapest bounds, and the widest."""

from dataclasses import replace

import torch
from torch import Tensor

from lingraft.solver.network import Network
from lingraft.solver.nodes import Convolution, Dense, Gather, Input, Node, Scale, Site, Sum

#: u, what one operation in float64 may round away, as a share of its result.
UNIT = 2.0**-53


#: What is given away wherever numbers are so small that they lose digits, or all, to underflow: at most 2⁻¹⁰⁷⁵ times a
#: value an operation. It is multiplied by whatever comes behind, as losses are.
UNDERFLOW = 1e-200


def share(terms: int) -> float:
    """What a sum of n products may lose to rounding, in whatever order, as a share of the sum of their sizes.

    That is γ = n·u / (1 − n·u). Twice as much also pays for a bias, which is no larger than the products and the result
    together, and 14·u for the few operations before and after the sum; n·u is far below 1.
    """
    return (2 * terms + 14) * UNIT


def fan_in(node: Node) -> int:
    """How many products one value of a linear node is the sum of, at most."""
    match node:
        case Dense():
            return node.weight.shape[1]
        case Convolution():
            return node.matrix.shape[1]
        case Sum():
            return len(node.signs)
        case Scale() | Gather():
            return 1
    raise AssertionError(f"it is not known how {type(node).__name__} rounds")


def work(network: Network) -> int:
    """About how many products the network computes for one image."""
    return sum(1 if isinstance(n, Input | Site) else n.size * fan_in(n) for n in network.nodes)


def through_linear(node: Node, bounds: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Bounds (N, *shape) of a linear node from those of its inputs, widened by what its sums may lose to rounding.

    With s the share, the inputs lie within c ± r but for u·(|c| + r). Of the sum W·c + b at most γ·(|W|·|c| + |b|) is
    lost, where |b| ≤ |W|·|c| + |W·c + b|. So s·(|W|·(|c| + r) + |W·c + b|) covers both, and the rounding of the radius.
    What is only moved loses nothing.
    """
    if isinstance(node, Gather):
        ((lower, upper),) = bounds
        return node.forward(lower), node.forward(upper)
    loss = share(fan_in(node))
    centers = [(upper + lower) / 2 for lower, upper in bounds]
    radii = [(upper - lower) / 2 for lower, upper in bounds]
    center = node.forward(*centers)
    radius = node.spread(*[torch.add(r, c.abs().add_(r), alpha=loss) for c, r in zip(centers, radii, strict=True)])
    radius = radius + loss * center.abs()
    small = radius < UNDERFLOW / UNIT  # else the share of it is more than what underflows
    if bool(small.any()):
        live = counting(node).spread(*[(c.abs() + r > 0).to(c) for c, r in zip(centers, radii, strict=True)]) > 0
        radius = torch.where(small & live, radius + UNDERFLOW, radius)
    return center - radius, center + radius


def counting(node: Node) -> Node:
    """A linear node with a 1 for each weight that is not 0: sums of what is not negative neither cancel nor vanish."""
    match node:
        case Convolution():
            return replace(node, matrix=(node.matrix != 0).double())
        case Dense() | Scale():
            return replace(node, weight=(node.weight != 0).double())
    return node


def through_site(site: Site, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of the outputs: those that the activation has between the bounds, and of a line, its values at them.

    An activation rounds its value by a few u of it, which whatever comes next allows for; a line, in which slope·z and
    the intercept may cancel, is widened here.
    """
    ends = site.activation.between(lower, upper)
    grafted = bool(site.grafted.any())
    if grafted:
        ends = (
            torch.where(site.grafted, site.line(lower), ends[0]),
            torch.where(site.grafted, site.line(upper), ends[1]),
        )
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    if grafted:
        terms = site.slope.abs() * torch.maximum(lower.abs(), upper.abs()) + site.intercept.abs()
        loss = torch.where(site.grafted & (site.slope != 0), share(1) * terms + UNDERFLOW, 0.0)
        low, high = low - loss, high + loss
    return low, high


def interval_bounds(network: Network, lower: Tensor, upper: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    """Pre-activation bounds (N, *shape) of every site for boxes (N, *input_shape); keys are positions of the sites."""
    values: list[tuple[Tensor, Tensor]] = []
    found = {}
    for i, node in enumerate(network.nodes):
        inputs = [values[j] for j in node.inputs]
        if isinstance(node, Input):
            values.append((network.inside(lower), network.inside(upper)))
        elif isinstance(node, Site):
            found[i] = inputs[0]
            values.append(through_site(node, *inputs[0]))
        else:
            values.append(through_linear(node, inputs))
    return found
