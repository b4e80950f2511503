"""Better multipliers: Adam (Kingma & Ba 2015) on α and β of many domains at once."""

from dataclasses import replace

import torch
from torch import Tensor

from lingraft.solver.dual import Domains, Dual, edge_of


class Adam:
    """Ascends on one tensor of multipliers, kept between `low` and `high`."""

    def __init__(self, value: Tensor, low: float, high: float):
        self.value, self.low, self.high = value, low, high
        self.first, self.second = torch.zeros_like(value), torch.zeros_like(value)
        self.step = 0

    def ascend(self, gradient: Tensor, rate: float | Tensor) -> None:
        """One step; `gradient` is used up."""
        self.step += 1
        self.first.lerp_(gradient, 0.1)
        self.second.lerp_(gradient.square_(), 0.01)
        scale = self.second.sqrt().add_(1e-9)
        correction = (1 - 0.99**self.step) ** 0.5 / (1 - 0.9**self.step)
        self.value.add_(torch.div(self.first, scale, out=gradient).mul_(rate * correction))
        self.value.clamp_(self.low, self.high)


class Beta:
    """β of the taps that are split in any of the domains, as few rows instead of (T, B)."""

    def __init__(self, domains: Domains, dual: Dual):
        self.smooth = dual.smooth
        self.rows = (domains.split != 0).any(1).nonzero().flatten()
        self.sign = domains.split[self.rows].to(dual.dtype)
        self.lower, self.upper = domains.lower[self.rows], domains.upper[self.rows]
        self.value = domains.beta[self.rows]
        self.push = torch.zeros_like(domains.beta) if len(self.rows) else None
        self.adam = Adam(self.value, -torch.inf if self.smooth else 0.0, torch.inf)

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


def improve(
    dual: Dual, domains: Domains, steps: int, rate: float = 0.1, decay: float = 0.95, enough: float = torch.inf
) -> tuple[Tensor, Domains]:
    """Bounds (B,) after `steps` steps, and the domains with the multipliers that give them.

    A domain whose bound exceeds `enough` keeps its multipliers from then on.
    """
    result = replace(domains, alpha=domains.alpha.clone())
    rows, lines, open_ = dual.rows(domains), dual.lines(domains), dual.open(domains)
    beta = Beta(domains, dual)
    alpha = Adam(result.alpha, 0.0, 1.0)
    fixed = torch.where(open_, 0.0, lines.lower_slope)
    free = open_.to(dual.dtype)
    for step in range(steps + 1):
        lines = lines._replace(lower_slope=torch.addcmul(fixed, free, alpha.value))
        row = dual.backward(rows, lines, beta.pushes(), beta.edge())
        below = row.c <= enough
        if step == steps or not bool(below.any()):
            break
        _, z, _, gradient = dual.forward(row, lines)
        moving = below.to(dual.dtype) * rate
        beta.ascend(z, moving)
        alpha.ascend(gradient.mul_(free), moving)
        rate *= decay
    beta.store(result)
    return row.c, result
