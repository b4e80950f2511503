"""Branch and bound by propagation, where a counterexample must fulfil several constraints at once.

A margin that is the largest of several functions f is 0 or less only where all of them are. What each says by itself is
lost in a bound of their maximum; here it is kept. In a domain, every f ≤ 0 and every tap's bounds l ≤ z ≤ u limit the
inputs, these limit the taps, and so on until nothing changes: a domain in which some bounds contradict each other has
no counterexample. For formulas that are written as networks this is what solvers of them call unit propagation. The
next tap to split is the one whose sides, after propagation, come nearest to a contradiction.

Only for networks whose taps are all of one site, so that z = A·t + r for inputs center + radius·t, |t| ≤ 1. All bounds
are widened by more than rounding takes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.solver.bab import Attack, Falsified
from lingraft.solver.bounds import bound_sites, margin_crown
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import Collapsed, collapse
from lingraft.solver.intervals import share
from lingraft.solver.margin import MARGIN
from lingraft.solver.network import Network
from lingraft.solver.nodes import Site
from lingraft.solver.region import Region
from lingraft.solver.rounding import Loss, allowance

#: Rounds of propagation at most; each is sound by itself.
ROUNDS = 30

#: A round that moves no bound of an input by more than this is the last one.
STEP = 1e-3

#: What is added to a quotient of numbers for its own rounding: inputs are between −1 and 1.
ROUNDING = 1e-12

#: Taps that reach no further over 0 than this, in units of what one input does to them, are as good as split.
SETTLED = 1e-4

#: How much more a constraint counts that is one step nearer to a contradiction, what a contradiction counts, and what
#: is added to the gain of each side, so that the product of both is not 0.
NEARER, DONE, LEAST = 5.0, 1e6, 1e-6

#: Taps whose sides are tried at most before one of them is split.
TRIED = 128


@dataclass
class _Domains:
    """B domains: bounds of the inputs t (B, n) and of the taps (B, T)."""

    low: Tensor
    high: Tensor
    lower: Tensor
    upper: Tensor

    def select(self, which: Tensor) -> "_Domains":
        return _Domains(*(part[which] for part in (self.low, self.high, self.lower, self.upper)))

    @property
    def empty(self) -> Tensor:
        """Which of them (B,) have no point."""
        return (self.low > self.high).any(1) | (self.lower > self.upper).any(1)


def collapsed_functions(network: Network, region: Region, node: int, budget: Budget) -> tuple[Collapsed, Tensor] | None:
    """The values of a vector `node` over a region, collapsed, and what rounding may have added to them.

    None where the network before it has other than one site of ReLUs.
    """
    part = Network(network.nodes[: node + 1], network.input_shape)
    if [site.kind for site in part.nodes if isinstance(site, Site)] != ["relu"]:
        return None
    found = bound_sites(part, region, budget)
    spec = torch.eye(part.nodes[node].size, dtype=torch.float64, device=found.center.device)
    zero, loss = spec.new_zeros(len(spec)), Loss(found.losses)
    margin_crown(part, found, spec, zero, loss, budget)
    functions = collapse(part, found, spec, zero, budget)
    return functions, loss.total + allowance(found.losses, found.sizes[-1], spec, zero)


class ConjunctionSearch:
    """Shows that nowhere in a region all of some functions (`which` (K,) of the collapsed ones) are 0 or less.

    `open` are the domains that are not done, also after the time was over. `loss` is what rounding may have added, and
    points are left out where one of the functions is above `margin`.
    Where nothing can be split any more, `attack` looks at a point; a witness is raised as Falsified.
    """

    def __init__(self, functions: Collapsed, loss: Tensor, which: Tensor, attack: Attack, margin: float = MARGIN):
        self.center, self.radius, self.attack = functions.center, functions.radius, attack
        (taps,) = functions.taps
        P, center, radius = taps.P.dense(), functions.center, functions.radius
        self.A, self.r = P * radius, taps.r + P @ center
        p = functions.p[:, which].t()
        self.a, self.q = p * radius, functions.q[:, which].t()
        self.c = functions.c[which] + p @ center - loss[which] - margin
        moved = (P.abs() @ center.abs()), (p.abs() @ center.abs())
        size = self.A.abs().sum(1) + self.r.abs() + moved[0]
        terms = share(2 * (self.A.shape[1] + len(self.r)))
        #: what rounding may take from the taps (T,) and from the functions (K,)
        self.tap_loss = taps.loss + terms * size
        self.loss = terms * (self.a.abs().sum(1) + 4 * self.q.abs() @ size + self.c.abs() + moved[1])
        self.row, self.column = self.A.nonzero(as_tuple=True)
        self.value = self.A[self.row, self.column]
        #: how far the widest input moves each tap
        self.unit = 2 * self.A.abs().amax(1).clamp(min=torch.finfo(torch.float64).tiny)
        ones = torch.ones_like(center)[None]
        self.open = [_Domains(-ones, ones, functions.lower[None], functions.upper[None])]
        self.visited = 0

    def run(self, budget: Budget) -> bool:
        """Whether it is shown; not if a domain is left in which nothing can be split."""
        while self.open:
            budget.check_time()
            # not lost if the time is over within
            domain = self._propagated(self.open[-1], budget)
            if bool(domain.empty):
                self.open.pop()
                continue
            children = self._children(domain, budget)
            if children is None:
                witness = self.attack(self._point(domain))
                if witness is not None:
                    raise Falsified(witness)
                return False
            self.open.pop()
            self.open += children
            self.visited += 2
        return True

    def _children(self, domain: _Domains, budget: Budget) -> list[_Domains] | None:
        """What is left of both sides of the tap that is split, the more constrained last; None if there is none."""
        reach = torch.minimum(-domain.lower[0], domain.upper[0]) / self.unit
        count = min(TRIED, int((reach > SETTLED).sum()))
        if not count:
            return None
        taps = reach.topk(count).indices
        both = domain.select(torch.zeros(2 * len(taps), dtype=torch.long, device=taps.device))
        columns = torch.arange(len(taps), device=taps.device)
        both.upper[columns, taps] = 0.0
        both.lower[columns + len(taps), taps] = 0.0
        both = self._propagated(both, budget)
        gain = (self._nearness(both) - self._nearness(domain)).clamp(min=0).sum(1)
        gain = torch.where(both.empty, DONE, gain).view(2, -1)
        best = int(((gain[0] + LEAST) * (gain[1] + LEAST)).argmax())
        sides = torch.tensor([best, best + len(taps)], device=taps.device)
        sides = sides[gain[:, best].argsort()]
        return [both.select(side[None]) for side in sides if not bool(both.empty[side])]

    def _point(self, domain: _Domains) -> Tensor:
        """A point (1, n) of a domain, at the ends of the region where it has them: its constraints often meet there."""
        middle = (domain.low + domain.high) / 2
        t = torch.where(domain.low <= -1, -1.0, torch.where(domain.high >= 1, 1.0, middle))
        return self.center + self.radius * t

    def _nearness(self, domains: _Domains) -> Tensor:
        """How near the bounds of each tap (B, 2·T) are to contradicting the inputs: `NEARER` times with a step less."""
        lowest, highest = self._reached(domains)
        below = torch.where(domains.upper < highest, NEARER ** (-(domains.upper - lowest) / self.unit), 0.0)
        above = torch.where(domains.lower > lowest, NEARER ** (-(highest - domains.lower) / self.unit), 0.0)
        return torch.cat([below, above], 1)

    def _reached(self, domains: _Domains) -> tuple[Tensor, Tensor]:
        """The lowest and the highest value (B, T) of every tap, by the inputs alone."""
        middle, radius = (domains.low + domains.high) / 2, (domains.high - domains.low) / 2
        center, spread = middle @ self.A.t() + self.r, radius @ self.A.abs().t() + self.tap_loss
        return center - spread, center + spread

    def _propagated(self, domains: _Domains, budget: Budget) -> _Domains:
        """The domains with all bounds as tight as propagation makes them."""
        now = domains
        for _ in range(ROUNDS):
            budget.check_time()
            before = now
            lowest, highest = self._reached(before)
            lower, upper = torch.maximum(before.lower, lowest), torch.minimum(before.upper, highest)
            low, high, upper = self._by_functions(before.low, before.high, lower, upper)
            low, high = self._by_taps(low, high, lower, upper, lowest, highest)
            now = _Domains(low, high, lower, upper)
            alive = ~now.empty
            moved = torch.maximum(now.low - before.low, before.high - now.high)[alive]
            if not moved.numel() or float(moved.max()) <= STEP:
                break
        return now

    def _by_functions(self, low: Tensor, high: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds of the inputs, and upper bounds of the taps, by what keeps each function from being positive.

        A tap with a positive coefficient is 0 at least, or z at least, whichever is nearer to it; one with a negative
        coefficient is below the line from (lower, 0) to (upper, upper).
        """
        on, off = lower >= 0, upper <= 0
        slope = torch.where(on, 1.0, torch.where(off, 0.0, upper / (upper - lower)))
        shift = torch.where(on | off, 0.0, -lower * slope)
        steep = upper > -lower
        for a, q, c, loss in zip(self.a, self.q, self.c, self.loss, strict=True):
            factors = torch.where(q < 0, slope, steep.to(slope)) * q
            row = factors @ self.A + a
            constant = (torch.where(q < 0, shift, 0.0) * q).sum(1) + factors @ self.r + c
            least = constant + torch.where(row > 0, row * low, row * high).sum(1) - loss
            # of the function, no more than this is left above its least value
            left = (-least)[:, None]
            low, high = _limited(low, high, row, left)
            rest = torch.where((q > 0) & ~steep, left / q.clamp(min=torch.finfo(q.dtype).tiny), torch.inf)
            upper = torch.minimum(upper, rest * (1 + ROUNDING) + ROUNDING * self.unit)
            upper = torch.where(least[:, None] > 0, lower - 1.0, upper)  # there is no point
        return low, high, upper

    def _by_taps(
        self, low: Tensor, high: Tensor, lower: Tensor, upper: Tensor, lowest: Tensor, highest: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Bounds of the inputs by those of the taps, which the inputs alone let be from `lowest` to `highest`."""
        below, above = (upper - lowest)[:, self.row], (highest - lower)[:, self.row]
        up = self.value > 0
        steps = self.value.abs()
        before_low, before_high = low[:, self.column], high[:, self.column]
        # from the end at which the tap is lowest, for its upper bound, and highest, for its lower one
        most = before_low + torch.where(up, below, above) / steps + ROUNDING
        least = before_high - torch.where(up, above, below) / steps - ROUNDING
        index = self.column.expand(len(low), -1)
        return low.scatter_reduce(1, index, least, "amax"), high.scatter_reduce(1, index, most, "amin")


def _limited(low: Tensor, high: Tensor, row: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds (B, n) of inputs at which row·t is at most `left` (B, 1) above its least value."""
    reach = left / row.abs() + ROUNDING  # infinite, or nothing at all, where the row is 0
    most = torch.where(row > 0, low + reach, torch.inf)
    least = torch.where(row < 0, high - reach, -torch.inf)
    return torch.maximum(low, least), torch.minimum(high, most)
