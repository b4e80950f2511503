"""Tight upper bounds of max pooling: functions of the image above the largest of many values, not of two at a time.

Let W_i·x + w_i be above player i of a tournament (`tournaments.py`) for all images |x| ≤ 1. Then, for *any* vector G,

    max_i (W_i·x + w_i)  ≤  G·x + g        g = max_i ( ‖W_i − G‖₁ + w_i )

For the best G that is a facet of the concave envelope of the maximum. With the chords of its comparisons, or with the
facets of each by itself, a tournament of 25 players is bounded several times as badly. A comparison is m = b + h, so
this bounds its tap: h ≤ G·x + g − b, where b depends on the image and on taps before; in the row of a margin, −b takes
away what b itself has put there. A split of the comparison leaves the players of one side, whose comparison has the
same G and a smaller g, so that bounds only rise. A player that is a ReLU itself counts as two: 0, and what is above z.
"""

from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from lingraft.model.activations import Lines, activation
from lingraft.solver.ascent import Adam
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains, Dual, Facets, Relaxed, Row
from lingraft.solver.forms import CHUNK
from lingraft.solver.matrix import Matrix
from lingraft.solver.tournaments import Comparisons, Tournaments

#: Weights of the players of all comparisons at most.
MOST = 1 << 22

#: Steps on G, the size of the first in units of the players' weights, and what it shrinks by in each.
STEPS, RATE, DECAY = 40, 0.05, 0.97

#: Steps on α are so many times as long.
ON_ALPHA = 2

#: Size of the last step on α: longer ones, later, would lead away from where these have led.
LAST = ON_ALPHA * RATE * DECAY**STEPS


@dataclass
class Block:
    """Comparisons, of up to K players that look at up to k pixels; `tap` (U,) are the numbers of their taps, `final`
    (U,) those of the last comparisons of their tournaments.

    weight (U, K, k) and w (U, K) are above the players, w = −∞ where there are fewer; `pixel` (U, k) are the pixels,
    of which those with `seen` (U, k) count. The second sides are P·x + r, (U, n) and (U,), and what taps add to them.
    """

    tap: Tensor
    final: Tensor
    weight: Tensor
    w: Tensor
    pixel: Tensor
    seen: Tensor
    P: Tensor
    r: Tensor

    def __post_init__(self) -> None:
        #: how large the weights of the players of each comparison are (U, 1)
        self.unit = (self.weight.abs().amax(1).sum(1) / self.seen.sum(1).clamp(min=1)).clamp(min=1e-30)[:, None]
        #: the sizes of the terms of each player (U, K)
        self.size = self.weight.abs().sum(2) + self.w.abs().nan_to_num(posinf=0.0)

    def finals(self) -> "Block":
        """Those that are the last of their tournaments."""
        which = (self.tap == self.final).nonzero().flatten()
        return Block(*(getattr(self, f.name)[which] for f in fields(self)))

    def middle(self) -> Tensor:
        """The mean (U, k) of the players' weights."""
        there = torch.isfinite(self.w)[:, :, None]
        return torch.where(there, self.weight, 0.0).sum(1) / there.sum(1)

    def over(self, G: Tensor) -> Tensor:
        """‖W_i − G‖₁ + w_i (U, K) for G (U, k), a little more than is computed."""
        rounding = (self.weight.shape[2] + 8) * torch.finfo(torch.float64).eps
        slack = rounding * (self.size + G.abs().sum(1, keepdim=True))
        return (self.weight - G[:, None]).abs_().sum(2) + self.w + slack

    def descent(self, G: Tensor, x: Tensor) -> Tensor:
        """The direction (U, k) in which G·x + g falls, at x (n,)."""
        worst = self.over(G).argmax(1)
        weight = self.weight[torch.arange(len(worst), device=worst.device), worst]
        return ((weight - G).sign() - x[self.pixel]) * self.seen


class Largest:
    """Functions above the comparisons of max pooling, over the whole region, |x| ≤ 1, for all margins."""

    def __init__(self, collapsed: Collapsed, lines: Lines, budget: Budget):
        self.blocks: list[Block] = []
        self.finals: list[Block] = []
        #: −Q of the second sides of each site's comparisons, by the number of its first tap
        self.on_taps: dict[int, Matrix] = {}
        known = collapsed.tournaments
        if known is None or any(activation(taps.kind).pieces is None for taps in collapsed.taps):
            return
        self.first = known.comparisons[0].first
        self.last = known.comparisons[-1].first + len(known.comparisons[-1].players)
        if (self.last - self.first) * len(collapsed.center) > MOST:
            return
        players = _players(collapsed, known, lines, budget)
        groups: dict[int, list[Comparisons]] = {}  # of about as many players
        for each in known.comparisons:
            groups.setdefault((each.players.shape[1] - 1).bit_length(), []).append(each)
        blocks: list[Block] = []
        for group in groups.values():
            block = _block(collapsed, group, *players, MOST - sum(other.weight.numel() for other in blocks))
            if block is None:
                return
            blocks.append(block)
        self.blocks = blocks
        self.finals = [some for block in blocks if len((some := block.finals()).tap)]
        for each in known.comparisons:
            if each.first:
                self.on_taps[each.first] = each.b.Q.scaled(-torch.ones(each.first).to(players[0]))

    @property
    def taps(self) -> Tensor:
        """The numbers of all taps that are comparisons."""
        return torch.cat([block.tap for block in self.blocks])

    def facets(self, G: list[Tensor], others: Facets, blocks: list[Block] | None = None) -> Facets:
        """Upper bounds of all comparisons, or of some blocks of them, from any G (U, k) of the last ones.

        `others` has those of taps that are no comparisons.
        """
        count = max(len(others.g), self.last)
        g, used = others.g.new_zeros(count, 1), others.used.new_zeros(count, 1)
        g[: len(others.g)], used[: len(others.g)] = others.g, others.used
        final, rows = g.new_zeros(2, self.last - self.first, others.G.shape[1])
        for block, mine in zip(self.finals, G, strict=True):
            final[block.tap - self.first] = final[block.tap - self.first].scatter_add_(
                1, block.pixel, mine * block.seen
            )
        for block in self.blocks if blocks is None else blocks:
            mine = final[block.final - self.first].gather(1, block.pixel) * block.seen
            rows[block.tap - self.first] = (-block.P).scatter_add_(1, block.pixel, mine)
            g[block.tap, 0], used[block.tap] = block.over(mine).amax(1) - block.r, True
        return Facets(others.G.with_rows([(self.first, Matrix.of_dense(rows))], count), g, used, self.on_taps)


def _players(collapsed: Collapsed, known: Tournaments, lines: Lines, budget: Budget) -> tuple[Tensor, Tensor, Tensor]:
    """Functions weight·x + w above the players, (M, n) and (M,), but where these are ReLUs at their floor (M,)."""
    values = known.players
    p, q = (matrix.dense().t().contiguous() for matrix in (values.P, values.Q))
    plain = replace(collapsed, p=p, q=q, c=values.r, tournaments=None)
    dual = Dual(plain, torch.float64, budget)
    row, loss = dual.margins, 2 * values.loss
    single = (row.p == 0).all(0) & ((row.q != 0).sum(0) == 1) & (row.q.sum(0) > 0)
    floor = torch.where(single, row.c + loss, -torch.inf)
    weights, constants = [], []
    for some in torch.arange(len(loss), device=loss.device).split(CHUNK):
        here = Row(*(t[..., some] for t in row))
        gain, tap = here.q.max(0)
        inside, alone = dual.tap_rows(tap), single[some]
        bent = Row(*(gain * t for t in inside))
        here = Row(
            torch.where(alone, bent.q, here.q),
            torch.where(alone, bent.p, here.p),
            here.c + torch.where(alone, bent.c, 0.0),
        )
        lost = loss[some] + torch.where(alone, gain * dual.loss[tap, 0], 0.0)
        every = Relaxed.alone(Lines(*(t.expand(-1, len(some)) for t in lines)))
        found = dual.backward(Row(*(-t for t in here)), every, None)
        weights.append(-found.p.t())
        constants.append(lost - found.c - found.p.abs().sum(0))
    return torch.cat(weights), torch.cat(constants), floor


def _block(
    collapsed: Collapsed, group: list[Comparisons], weight: Tensor, w: Tensor, floor: Tensor, left: int
) -> Block | None:
    """The comparisons of several sites, given functions above all players; None if that is more weights than `left`."""
    most = max(each.players.shape[1] for each in group)
    players = torch.cat([F.pad(each.players, (0, most - each.players.shape[1]), value=-1) for each in group])
    there, number = players >= 0, players.clamp(min=0)
    seen = torch.zeros(len(number), weight.shape[1], dtype=torch.bool, device=weight.device)
    for column, real in zip(number.t(), there.t(), strict=True):
        seen |= (weight[column] != 0) & real[:, None]
    pixel = seen.byte().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(seen.sum(1).max()))]
    if pixel.numel() * (1 + number.shape[1]) > left:
        return None
    seen = seen.gather(1, pixel)
    mine = weight.view(-1)[number[:, :, None] * weight.shape[1] + pixel[:, None]] * there[:, :, None] * seen[:, None]
    mine = torch.cat([mine, torch.zeros_like(mine[:, :1])], 1)  # and the largest floor of them
    least = torch.where(there, floor[number], -torch.inf).amax(1, keepdim=True)
    constants = torch.cat([torch.where(there, w[number], -torch.inf), least], 1)
    tap = torch.cat([each.first + torch.arange(len(each.players), device=w.device) for each in group])
    final = torch.cat([each.final for each in group])
    P, r, loss = (
        torch.cat(t) for t in zip(*((each.b.P.dense(), each.b.r, each.b.loss) for each in group), strict=True)
    )
    return Block(tap, final, mine, constants, pixel, seen, P * collapsed.radius, r + P @ collapsed.center - 2 * loss)


def fit(largest: Largest, others: Facets, dual: Dual, base: Domains) -> tuple[Facets, Domains]:
    """Facets that make the bound of `base` (one domain) good, and `base` with α that use them: steps on both."""
    finals = largest.finals
    climbs = [Adam(block.middle() / block.unit, -torch.inf, torch.inf) for block in finals]
    best, rate, alpha = -torch.inf, RATE, None
    for step in range(STEPS + 1):
        dual.budget.check_time()
        G = [block.unit * climb.value for block, climb in zip(finals, climbs, strict=True)]
        mine = dual.with_facets(largest.facets(G, others, finals))
        if alpha is None:
            free = mine.open(base).to(dual.dtype)
            shared = F.pad(mine.shared(free), (0, 0, 0, len(free) - len(mine.shared(free))))
            alpha, share = Adam(base.alpha.clone(), 0.0, 1.0), Adam(torch.ones_like(base.share), 0.0, 1.0)
        domain = replace(base, alpha=alpha.value.clone(), share=share.value.clone())
        row, lines = mine.bounded(domain), mine.lines(domain)
        if not step or float(row.c) > best:
            best, result = float(row.c), (G, domain)
        x, _, _, gradient, on_share = mine.forward(row, lines)
        for block, climb, weights in zip(finals, climbs, G, strict=True):
            climb.ascend(block.descent(weights, x[:, 0].double()), rate)
        alpha.ascend(gradient.mul_(free), ON_ALPHA * rate)
        share.ascend(F.pad(on_share, (0, 0, 0, len(free) - len(on_share))).mul_(shared), ON_ALPHA * rate)
        rate *= DECAY
    return largest.facets(result[0], others), result[1]
