"""Products of two values, written with squares so that they are bounded well on a region.

For any numbers u, v and s ≠ 0, with a' = s·(a − u) and b' = (b − v)/s,

    a·b = a'·b' + v·a + u·b − u·v        a'·b' = ((a' + b')² − (a' − b')²) / 4

This always is the same function, but its bounds are not: with u and v in the middle of what a and b can be, and s so
that a' and b' are equally wide, the lines of the two squares leave no more than McCormick's envelope does in the
middle, r_a·r_b for radii r_a and r_b, and nothing where a or b is fixed. So the numbers are chosen for each region. No
choice is rounded: s is a power of 2, and u and v have so few digits that u·v is exact.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.solver.intervals import UNDERFLOW, share, through_linear, through_site
from lingraft.solver.network import Network
from lingraft.solver.nodes import Input, Node, Product, Scale, Site
from lingraft.solver.region import Region

#: Radii count as at least this share of the largest number of their node: what is large before it is made small by u
#: or v loses digits, which s must not make large again. Where one factor is all but fixed, the lines leave about this
#: share of what the other does to the product.
_SHARE = 2.0**-20

#: And as at least this.
_LEAST = 1e-30


class Planes(NamedTuple):
    """Planes below and above products a·b, (B, *shape) each: of_first·a + of_second·b + constant ± gap."""

    of_first: Tensor
    of_second: Tensor
    constant: Tensor
    gap: Tensor


def planes(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Planes:
    """Of products of values between these bounds.

    a·b = v·a + u·b − u·v + (a − u)·(b − v) for any u and v, and where these are in the middle the last is at most the
    product of the radii. The gap has more than what rounding takes from the constant and from itself.
    """
    (u, wide), (v, other) = (_around(*ends) for ends in (a, b))
    constant, gap = -u * v, wide * other
    return Planes(v, u, constant, gap + share(4) * (constant.abs() + gap) + UNDERFLOW)


def _around(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The middle of bounds, and how far they are from it; 0 and infinity where they are not known."""
    middle = ((lower + upper) / 2).nan_to_num(0.0, 0.0, 0.0)
    return middle, torch.maximum(upper - middle, middle - lower)


def through_product(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], others: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Bounds (B, *shape) of a product of two values plus two others, each between its bounds, without its squares."""
    corners = torch.stack([a * b for a in first for b in second])
    parts = [(corners.amin(0), corners.amax(0)), *others]
    low, high = (torch.stack([part[side] for part in parts]) for side in (0, 1))
    live = torch.stack([torch.maximum(low.abs(), high.abs()) > 0 for low, high in (first, second)]).all(0)
    less, more = (share(4) * end.abs().sum(0) + UNDERFLOW * live for end in (low, high))
    return low.sum(0) - less, high.sum(0) + more


def balanced(network: Network, region: Region) -> Network:
    """The same network with its products written for this region; itself, if it has none."""
    scales: dict[int, tuple[int, int, str]] = {}
    for node in network.nodes:
        if isinstance(node, Product):
            first, second = node.factors(network.nodes)
            (a,), (b,) = network.nodes[first].inputs, network.nodes[second].inputs
            _, _, one, other = node.inputs
            scales |= {first: (a, b, "first"), second: (a, b, "second"), one: (a, b, "one"), other: (a, b, "other")}
    if not scales:
        return network
    ends = (network.inside(end[None].double()) for end in (region.lower, region.upper))
    nodes: list[Node] = []
    values: list[tuple[Tensor, Tensor]] = []
    for i, node in enumerate(network.nodes):
        if i in scales:
            a, b, part = scales[i]
            assert isinstance(node, Scale)
            weight, bias = _scale(values[a], values[b], part)
            node = replace(node, weight=weight, bias=bias)
        nodes.append(node)
        inputs = [values[j] for j in node.inputs]
        if isinstance(node, Input):
            lower, upper = ends
            values.append((lower, upper))
        elif isinstance(node, Site):
            values.append(through_site(node, *inputs[0]))
        else:
            values.append(through_linear(node, inputs))
    return Network(nodes, network.input_shape, network.ways)


def _scale(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], part: str) -> tuple[Tensor, Tensor]:
    """Weight and bias of one of the four scales of a product of values between these bounds (1, *shape)."""
    (u, wide), (v, other) = (_middle(*ends) for ends in (a, b))
    power = 2.0 ** ((other / wide).log2() / 2).round()
    none = torch.zeros_like(u)
    known = torch.isfinite(u) & torch.isfinite(v) & torch.isfinite(power)
    u, v, power = torch.where(known, u, none), torch.where(known, v, none), torch.where(known, power, 1.0)
    match part:
        case "first":
            return power, -u * power
        case "second":
            return 1 / power, -v / power
        case "one":
            return v, -u * v
    return u, none


def _middle(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The middle of bounds, in single precision, and what counts as half their distance; of the shape of one value."""
    middle = ((lower + upper) / 2)[0].float().double()
    radius = ((upper - lower) / 2)[0]
    least = max(_SHARE * float((middle.abs() + radius).max()), _LEAST)
    return middle, radius.clamp(min=least)
