"""Better multipliers: Adam (Kingma & Ba 2015) on α and β of many domains at once."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace

import torch
from torch import Tensor

from lingraft.solver.clock import worked
from lingraft.solver.columns import columns_of
from lingraft.solver.dual import Domains, Dual, Relaxed, Row, edge_of

#: Size of the first step, and what it shrinks by in each. Steps go on through points where the bound falls, and end
#: where they are: going back to the best point would begin the steps of all that is below it at the same place again.
RATE, DECAY = 0.1, 0.95

#: Steps over which the gain of a domain is measured: if the first are too long, a shorter one still gets its turn.
WINDOW = 3

#: Bounds (B,) → what a step must gain (B,) in domains that have them.
LeastGain = Callable[[Tensor], Tensor]

#: (domains that made a step at once, seconds of work).
Clock = Callable[[int, float], None]


class Adam:
    """Ascends on one tensor of multipliers, kept between `low` and `high`."""

    def __init__(self, value: Tensor, low: float, high: float):
        self.value, self.low, self.high = value, low, high
        self.first, self.second = torch.zeros_like(value), torch.zeros_like(value)
        self.step = 0

    def select(self, columns: Tensor) -> "Adam":
        """The same for some of the columns."""
        result = Adam(columns_of(self.value, columns), self.low, self.high)
        result.first, result.second = columns_of(self.first, columns), columns_of(self.second, columns)
        result.step = self.step
        return result

    def ascend(self, gradient: Tensor, rate: float | Tensor) -> None:
        """One step; `gradient` is used up."""
        self.step += 1
        self.first.lerp_(gradient, 0.1)
        # more than the type holds would be NaN in the next step
        self.second.lerp_(gradient.square_().clamp_(max=torch.finfo(gradient.dtype).max), 0.01)
        scale = torch.add(self.second, 1e-18, out=gradient).rsqrt_()
        correction = (1 - 0.99**self.step) ** 0.5 / (1 - 0.9**self.step)
        self.value.add_(scale.mul_(self.first).mul_(rate * correction)).clamp_(self.low, self.high)


class Beta:
    """β of the taps that are split in any of the domains, as few rows instead of (T, B)."""

    def __init__(self, domains: Domains, dual: Dual):
        self.smooth = dual.smooth
        self.rows = domains.split.to(dual.dtype).abs_().sum(1).nonzero().flatten()
        self.sign = domains.split[self.rows].to(dual.dtype)
        self.lower, self.upper = domains.lower[self.rows], domains.upper[self.rows]
        self.value = domains.beta[self.rows]
        self.push = torch.zeros_like(domains.beta) if len(self.rows) else None
        self.adam = Adam(self.value, -torch.inf if self.smooth else 0.0, torch.inf)

    def select(self, columns: Tensor) -> "Beta":
        """The same for some of the domains."""
        result = copy(self)
        kept = self.sign, self.lower, self.upper
        result.sign, result.lower, result.upper = (columns_of(tensor, columns) for tensor in kept)
        result.adam = self.adam.select(columns)
        result.value = result.adam.value
        result.push = None if self.push is None else columns_of(self.push, columns)
        return result

    def pushes(self) -> Tensor | None:
        """σ·β (T, B), None where nothing is split."""
        if self.push is not None:
            self.push[self.rows] = self.sign * self.value
        return self.push

    def edge(self) -> Tensor | None:
        """The constant of the splits of smooth taps."""
        return edge_of(self.sign * self.value, self.lower, self.upper) if self.smooth else None

    def ascend(self, z: Tensor, rate: float | Tensor) -> None:
        """∂bound/∂β = −σ·(z* − side); at β = 0, the side that z* is beyond."""
        if self.push is None:
            return
        beyond = z[self.rows]
        if self.smooth:
            push = self.sign * self.value
            outside = (beyond - self.upper).clamp(min=0) - (self.lower - beyond).clamp(min=0)
            inside = torch.where(push > 0, beyond - self.lower, beyond - self.upper)
            beyond = torch.where(push == 0, outside, inside)
        self.adam.ascend(-self.sign * beyond, rate)

    def store(self, domains: Domains) -> None:
        """Write the values into the domains."""
        domains.beta = domains.beta.index_copy(0, self.rows, self.value) if len(self.rows) else domains.beta


class _Climb:
    """The ascent of some domains: their multipliers, and how their bounds rose."""

    def __init__(self, dual: Dual, domains: Domains, rate: float):
        self.dual, self.domains, self.rate = dual, domains, rate
        self.rows, self.relaxation = dual.rows(domains), dual.relaxation(domains)
        self.shared = dual.shared(self.relaxation.free)
        self.share = Adam(domains.share[: len(self.shared)].clone(), 0.0, 1.0)
        self.alpha, self.beta = Adam(domains.alpha.clone(), 0.0, 1.0), Beta(domains, dual)
        self.row = self._bound()
        #: the best bounds after each of the last steps
        self.past = [self.row.c]

    def select(self, columns: Tensor) -> "_Climb":
        """The same for some of the domains."""
        result = copy(self)
        result.domains = self.domains.select(columns)
        result.rows = self.dual.rows(result.domains)
        result.relaxation = self.relaxation.select(columns)
        result.alpha = self.alpha.select(columns)
        result.share, result.shared = self.share.select(columns), columns_of(self.shared, columns)
        result.beta = self.beta.select(columns)
        result.row = Row(*(columns_of(tensor, columns) for tensor in self.row))
        result.lines = result._lines()
        result.past = [bounds[columns] for bounds in self.past]
        return result

    @property
    def best(self) -> Tensor:
        """The best bounds (B,) so far."""
        return self.past[-1]

    @property
    def gain(self) -> Tensor:
        """What each of the last steps gained (B,) on the average; infinite before there were enough of them."""
        if len(self.past) <= WINDOW:
            return torch.full_like(self.best, torch.inf)
        return (self.past[-1] - self.past[-1 - WINDOW]) / WINDOW

    def step(self, moving: Tensor) -> None:
        """One step of the domains that are `moving` (B,)."""
        _, z, _, gradient, on_share = self.dual.forward(self.row, self.lines)
        rate = self.rate * moving.to(self.dual.dtype)
        self.beta.ascend(z, rate)
        self.alpha.ascend(self.relaxation.gradient(self.alpha.value, self.row.q, z, gradient), rate)
        if len(self.shared):
            self.share.ascend(on_share.mul_(self.shared), rate)
        self.rate *= DECAY
        self.row = self._bound()
        self.past = [*self.past[-WINDOW:], torch.maximum(self.row.c, self.best)]

    def _lines(self) -> Relaxed:
        """With the multipliers as they are."""
        return Relaxed(*self.relaxation.at(self.alpha.value), share=self.shared * self.share.value)

    def _bound(self) -> Row:
        """With the multipliers as they are."""
        self.lines = self._lines()
        return self.dual.backward(self.rows, self.lines, self.beta.pushes(), self.beta.edge())

    def found(self) -> Domains:
        """The domains with their multipliers as they are."""
        result = replace(self.domains, alpha=self.alpha.value)
        if len(self.shared):
            result.share = torch.cat([self.share.value, self.domains.share[len(self.shared) :]])
        self.beta.store(result)
        return result


def improve(
    dual: Dual,
    domains: Domains,
    steps: int,
    enough: float = torch.inf,
    worth: LeastGain | None = None,
    clock: Clock | None = None,
    rate: float = RATE,
) -> tuple[Tensor, Domains]:
    """Bounds (B,) after at most `steps` steps, and the domains with the multipliers that give them.

    A domain is done whose bound exceeds `enough`, or rises by less in a step than is worth it, which `worth` tells (B,)
    for bounds (B,). `clock` is told what steps took; `rate` is the size of the first.
    """
    climb = _Climb(dual, domains, rate)
    left = torch.arange(len(domains), device=domains.margin.device)
    done: list[tuple[Tensor, Tensor, Domains]] = []
    for _ in range(steps):
        moving = climb.best <= enough
        if worth is not None:
            moving &= climb.gain > worth(climb.best)
        going = moving.nonzero().flatten()
        if not len(going):
            break
        if 2 * len(going) <= len(left):  # the others need not be bounded any more
            rest = (~moving).nonzero().flatten()
            done.append((left[rest], climb.row.c[rest], climb.found().select(rest)))
            climb, left, moving = climb.select(going), left[going], moving[going]
        started = worked(left.device)
        climb.step(moving)
        if clock is not None:
            clock(len(left), worked(left.device) - started)
    if not done:
        return climb.row.c, climb.found()
    done.append((left, climb.row.c, climb.found()))
    order = torch.cat([columns for columns, _, _ in done]).argsort()
    return torch.cat([best for _, best, _ in done])[order], Domains.join([d for _, _, d in done]).select(order)
