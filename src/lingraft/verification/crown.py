"""Backward bound propagation (CROWN, Zhang et al. 2018) over the nodes of a network."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lingraft.verification.network import Network
from lingraft.verification.nodes import Input, Site
from lingraft.verification.relaxation import Lines
from lingraft.verification.rows import Rows, select

#: Coefficients handled at once while rows pass back through the network; about 32 MB in float64.
CHUNK = 4_000_000

#: (position of a site, rows over its outputs) → rows over its inputs, and a constant for each row.
AtSite = Callable[[int, Rows], tuple[Rows, Tensor]]


def pass_back(network: Network, start: int, rows: Rows, at_site: AtSite) -> tuple[Rows, Tensor]:
    """Rows over the values of node `start` become rows over the image plus a constant (R,)."""
    pending = {start: rows}
    constant = rows.coefficients.new_zeros(len(rows))
    for i in range(start, -1, -1):
        here = pending.pop(i, None)
        if here is None:
            continue
        node = network.nodes[i]
        if isinstance(node, Input):
            return here, constant
        if isinstance(node, Site):
            part, added = at_site(i, here)
            parts = [part]
        else:
            parts, added = node.back(here)
        constant = constant + added
        for j, part in zip(node.inputs, parts, strict=True):
            pending[j] = pending[j].plus(part, network.nodes[j].shape) if j in pending else part
    shape = network.nodes[0].shape
    return Rows(constant.new_zeros(len(rows), *shape)), constant  # nothing depends on the image


def relaxed(lines: dict[int, Lines]) -> AtSite:
    """Replace each activation by the line that makes the row smaller: the rows then bound from below."""

    def at_site(i: int, rows: Rows) -> tuple[Rows, Tensor]:
        a = rows.coefficients
        ls, li, us, ui = (rows.view_of(t) for t in lines[i])
        positive = a > 0
        constant = (torch.where(positive, li, ui) * a).flatten(1).sum(1)
        return Rows(torch.where(positive, ls, us) * a, rows.origin), constant

    return at_site


def lower_bound(rows: Rows, constant: Tensor, center: Tensor, radius: Tensor) -> Tensor:
    """Minimum (R,) of the rows over the box center ± radius (each of the input's shape)."""
    p = rows.coefficients
    low = (p * rows.view_of(center)).flatten(1).sum(1) - (p.abs() * rows.view_of(radius)).flatten(1).sum(1)
    return constant + low


def chunks(network: Network, start: int, indices: Tensor, width: int) -> Iterator[Tensor]:
    """Cut `indices` so that rows of `width` coefficients each stay within CHUNK."""
    yield from indices.split(max(1, CHUNK // max(1, width)))


def row_width(network: Network, start: int) -> int:
    """Largest number of coefficients that one row over node `start` has on its way back, by passing one back."""
    widest = 1

    def watch(i: int, rows: Rows) -> tuple[Rows, Tensor]:
        nonlocal widest
        widest = max(widest, rows.coefficients[0].numel())
        return rows, rows.coefficients.new_zeros(len(rows))

    middle = torch.tensor([network.nodes[start].size // 2], device=device_of(network))
    rows, _ = pass_back(network, start, select(middle, network.nodes[start].shape, torch.float64), watch)
    return max(widest, rows.coefficients[0].numel())


def device_of(network: Network) -> torch.device:
    """Device of the network's constants."""
    for node in network.nodes:
        for value in vars(node).values():
            if isinstance(value, Tensor):
                return value.device
    return torch.device("cpu")


def crown_bounds(
    network: Network, start: int, indices: Tensor, lines: dict[int, Lines], center: Tensor, radius: Tensor
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds (R,) of the chosen flat `indices` of node `start` over the box center ± radius."""
    lows, highs = [], []
    for some in chunks(network, start, indices, 4 * row_width(network, start)):
        rows = select(some, network.nodes[start].shape, center.dtype)
        both = Rows(
            torch.cat([rows.coefficients, -rows.coefficients]),
            None if rows.origin is None else torch.cat([rows.origin, rows.origin]),
        )
        final, constant = pass_back(network, start, both, relaxed(lines))
        bound = lower_bound(final, constant, center, radius)
        lows.append(bound[: len(some)])
        highs.append(-bound[len(some) :])
    return torch.cat(lows), torch.cat(highs)
