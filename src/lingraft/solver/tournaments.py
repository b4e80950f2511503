"""The tournaments of max pooling in the collapsed network: what each open comparison is the largest of.

A comparison is max(a, b) = b + relu(a − b), where a and b are *players*, values that are no maxima themselves, or
winners of comparisons. One that is decided over the region has one side for its winner, so that those of the other
side never meet the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.solver.bounds import SiteBounds
from lingraft.solver.crown import row_width
from lingraft.solver.matrix import Matrix
from lingraft.solver.network import Network
from lingraft.solver.nodes import Larger

#: Coefficients of all rows at most: more are not worth their memory.
LARGEST = 1 << 22

#: (a node, indices (K,) of its values, a number of taps) → P (K, n), Q (K, taps), r and loss (K,) of the values, which
#: depend on these taps only.
RowsOf = Callable[[int, Tensor, int], tuple[Matrix, Matrix, Tensor, Tensor]]


@dataclass
class Values:
    """Values P·x + Q·h + r of the collapsed network, and what rounding may have taken from each."""

    P: Matrix
    Q: Matrix
    r: Tensor
    loss: Tensor


@dataclass
class Comparisons:
    """The open comparisons of one site, taps from `first` on: each is the largest of some of the players.

    `players` (U, K) are their numbers, −1 where there are fewer than K. `final` (U,) are the taps of the last open
    comparisons that their winners may come to. `b` are the second sides, with Q (U, first).
    """

    first: int
    players: Tensor
    final: Tensor
    b: Values


@dataclass
class Tournaments:
    """All players that may win an open comparison, with Q (M, T), and the comparisons, in the order of their sites."""

    players: Values
    comparisons: list[Comparisons]


def tournaments(
    network: Network, found: SiteBounds, taps: dict[int, tuple[int, Tensor]], rows: RowsOf
) -> Tournaments | None:
    """Those of a network over the region of `found`; None if there are none, or they are too large.

    `taps` has the number of the first tap of each site, and which neurons (U,) they are.
    """
    entries = {m: _entries(network, found, m) for m, node in enumerate(network.nodes) if isinstance(node, Larger)}
    open_ = [(m, *taps[network.nodes[m].inputs[1]]) for m in entries]
    open_ = [(m, first, index) for m, first, index in open_ if len(index)]
    if not open_:
        return None
    wanted: dict[int, Tensor] = {}  # of each node of players, which of its values
    for m, _, index in open_:
        leaves, may = entries[m]
        for leaf, here in zip(leaves, may[:, index], strict=True):
            wanted[leaf] = torch.cat([wanted.get(leaf, index[:0]), index[here]]).unique()
    if sum(row_width(network, leaf) * len(index) for leaf, index in wanted.items()) > LARGEST:
        return None
    total = max(first + len(index) for first, index in taps.values())
    parts: list[Values] = []
    number: dict[int, Tensor] = {}
    count = 0
    for leaf, index in wanted.items():
        number[leaf] = torch.full((network.nodes[leaf].size,), -1, device=index.device)
        number[leaf][index] = count + torch.arange(len(index), device=index.device)
        count += len(index)
        parts.append(Values(*rows(leaf, index, total)))
    comparisons, finals = [], _finals(network, found, taps, list(entries))
    for m, first, index in open_:
        leaves, may = entries[m]
        players = torch.stack(
            [torch.where(here, number[leaf][index], -1) for leaf, here in zip(leaves, may[:, index], strict=True)], 1
        )
        players = players.sort(1, descending=True).values[:, : int((players >= 0).sum(1).max())]
        b = Values(*rows(network.nodes[m].inputs[0], index, first))
        comparisons.append(Comparisons(first, players, finals[m][index], b))
    P, Q = (Matrix.of_dense(torch.cat(each)) for each in zip(*((v.P.dense(), v.Q.dense()) for v in parts), strict=True))
    r, loss = torch.cat([v.r for v in parts]), torch.cat([v.loss for v in parts])
    return Tournaments(Values(P, Q, r, loss), comparisons)


def _finals(
    network: Network, found: SiteBounds, taps: dict[int, tuple[int, Tensor]], larger: list[int]
) -> dict[int, Tensor]:
    """Of each value of each comparison, the tap of the last open one that it comes to; −1 if there is none."""
    finals = {m: torch.full((network.nodes[m].size,), -1, device=found.center.device) for m in larger}
    for m in reversed(larger):
        site = network.nodes[m].inputs[1]
        first, index = taps[site]
        own = first + torch.arange(len(index), device=index.device)
        finals[m][index] = torch.where(finals[m][index] < 0, own, finals[m][index])
        lower, upper = (bound.flatten() for bound in found.bounds[site])
        for side, stays in zip(_sides(network, m), (upper > 0, lower < 0), strict=True):
            if side in finals:
                finals[side] = torch.where(stays, finals[m], -1)
    return finals


def _sides(network: Network, m: int) -> tuple[int, int]:
    """The nodes a and b of a comparison."""
    b, site = network.nodes[m].inputs
    return network.nodes[network.nodes[site].inputs[0]].inputs[0], b


def _entries(network: Network, found: SiteBounds, m: int) -> tuple[list[int], Tensor]:
    """The nodes of the players of a tournament, and which of them may win (players, size) each of its values."""
    node = network.nodes[m]
    if not isinstance(node, Larger):
        return [m], torch.ones(1, node.size, dtype=torch.bool, device=found.center.device)
    lower, upper = (bound.flatten() for bound in found.bounds[node.inputs[1]])
    (first, wins), (second, loses) = (_entries(network, found, side) for side in _sides(network, m))
    # where both sides are equal all over the region, the first one wins
    return first + second, torch.cat([wins & ((upper > 0) | ~(lower < 0)), loses & (lower < 0)])
