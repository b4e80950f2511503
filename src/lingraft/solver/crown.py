"""Backward bound propagation (CROWN, Zhang et al. 2018) over the nodes of a network."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.budget import UNLIMITED, Budget
from lingraft.solver.network import Network, device_of
from lingraft.solver.nodes import Convolution, Dense, Input, Product, Site
from lingraft.solver.rounding import Loss
from lingraft.solver.rows import Rows, select

#: Coefficients handled at once while rows pass back through the network: 8 MB in float64, near a core's cache.
CHUNK = 1_000_000

#: (position of a site, rows over its outputs) → rows over its inputs, and a constant for each row.
AtSite = Callable[[int, Rows], tuple[Rows, Tensor]]

#: (position of a product, rows over it) → rows over the nodes at some positions, and a constant for each row.
AtProduct = Callable[[int, Rows], tuple[dict[int, Rows], Tensor]]

#: Called with the position of a node and the rows over its values.
Watch = Callable[[int, Rows], None]


def pass_back(
    network: Network,
    pending: dict[int, Rows],
    constant: Tensor,
    at_site: AtSite,
    watch: Watch | None = None,
    budget: Budget = UNLIMITED,
    at_product: AtProduct | None = None,
) -> tuple[Rows, Tensor]:
    """Rows over the values of some nodes, plus a constant (R,), become rows over the image plus a constant.

    `watch` sees them at every node, the image included. Products are what they are written with unless `at_product`
    knows better.
    """
    for i in range(max(pending), -1, -1):
        here = pending.pop(i, None)
        if here is None:
            continue
        budget.check_time()
        node = network.nodes[i]
        if watch is not None:
            watch(i, here)
        if isinstance(node, Input):
            return here, constant
        if isinstance(node, Site):
            part, added = at_site(i, here)
            parts = [(node.inputs[0], part)]
        elif isinstance(node, Product) and at_product is not None:
            by_node, added = at_product(i, here)
            parts = list(by_node.items())
        else:
            through, added = node.back(here)
            parts = list(zip(node.inputs, through, strict=True))
        constant = constant + added
        for j, part in parts:
            pending[j] = pending[j].plus(part, network.nodes[j].shape) if j in pending else part
    shape = network.nodes[0].shape
    return Rows(constant.new_zeros(len(constant), *shape)), constant  # nothing depends on the image


def neuron_rows(network: Network, start: int, indices: Tensor) -> tuple[dict[int, Rows], Tensor]:
    """Rows of single values of node `start`, already one node back, and their constants (R,)."""
    node = network.nodes[start]
    if isinstance(node, Input | Site):
        rows = select(indices, node.shape, torch.float64)
        return {start: rows}, rows.coefficients.new_zeros(len(rows))
    parts, constant = node.neurons(indices)
    pending: dict[int, Rows] = {}
    for j, part in zip(node.inputs, parts, strict=True):
        pending[j] = pending[j].plus(part, network.nodes[j].shape) if j in pending else part
    return pending, constant


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


def chunks(network: Network, start: int, indices: Tensor, budget: Budget) -> Iterator[Tensor]:
    """Cut the neurons of node `start` into groups whose rows stay within CHUNK, watching the time."""
    width = 4 * row_width(network, start, budget)
    budget.allow(16 * width)
    for some in indices.split(max(1, CHUNK // width)):
        budget.check_time()
        yield some


def row_width(network: Network, start: int, budget: Budget = UNLIMITED) -> int:
    """Largest number of coefficients that one row over node `start` has on its way back."""
    return _way(network, start, budget)[0]


def row_products(network: Network, start: int, budget: Budget = UNLIMITED) -> float:
    """How many products one row over node `start` takes on its way back."""
    return _way(network, start, budget)[1]


def _way(network: Network, start: int, budget: Budget) -> tuple[int, float]:
    """Width and products of one row over node `start`, by passing one back, once."""
    if start in network.ways:
        return network.ways[start]
    widest, products = 1, 0.0

    def watch(i: int, rows: Rows) -> None:
        nonlocal widest, products
        node, width = network.nodes[i], rows.coefficients[0].numel()
        widest = max(widest, width)
        products += width * (node.matrix.shape[1] if isinstance(node, Convolution) else 1)
        products += node.weight.numel() if isinstance(node, Dense) else 0

    def unchanged(i: int, rows: Rows) -> tuple[Rows, Tensor]:
        return rows, rows.coefficients.new_zeros(len(rows))

    middle = torch.tensor([network.nodes[start].size // 2], device=device_of(network))
    rows, _ = pass_back(network, *neuron_rows(network, start, middle), unchanged, watch, budget)
    network.ways[start] = max(widest, rows.coefficients[0].numel()), products
    return network.ways[start]


def crown_bounds(
    network: Network,
    start: int,
    indices: Tensor,
    lines: dict[int, Lines],
    center: Tensor,
    radius: Tensor,
    budget: Budget,
    losses: list[float],
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds (R,) of the chosen flat `indices` of node `start` over the box center ± radius.

    They are widened by what rounding may have added: see `Loss`, which takes the `losses` of the nodes up to `start`.
    """
    lows, highs = [], []
    for some in chunks(network, start, indices, budget):
        pending, constant = neuron_rows(network, start, some)
        both = {i: rows.and_negated() for i, rows in pending.items()}
        loss = Loss(losses)
        final, constant = pass_back(network, both, torch.cat([constant, -constant]), relaxed(lines), loss, budget)
        bound = lower_bound(final, constant, center, radius) - loss.total - losses[start]
        lows.append(bound[: len(some)])
        highs.append(-bound[len(some) :])
    return torch.cat(lows), torch.cat(highs)
