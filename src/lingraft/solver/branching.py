"""Splitting a domain in two: which tap, in the manner of filtered smart branching (De Palma et al. 2021), and where."""

from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.model.activations import Lines
from lingraft.names import lookup
from lingraft.solver.dual import Domains, Dual, Evaluation, Relaxed

#: (dual, domains, evaluation) → the tap (B,) to split of each of the B domains. Every choice among the taps that
#: `dual.splittable(domains)` (T, B) names is sound; a good one leaves fewer domains to prove.
Rule = Callable[[Dual, Domains, Evaluation], Tensor]

#: Rules by name.
RULES: dict[str, Rule] = {}

#: Taps of each domain whose children are really bounded before one is chosen.
CANDIDATES = 8


def register(name: str) -> Callable[[Rule], Rule]:
    """For `@register("mine")` before a rule: `lingraft.verify(…, branching="mine")` then splits by it."""

    def keep(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return keep


def require_rule(name: str, home: str | None = None) -> None:
    """Refuse a rule that is not known; a worker that does not know it yet imports `home`, its module, first."""
    if name not in RULES and home not in (None, "__main__"):
        import_module(str(home))
    if name not in RULES and home is not None:
        raise LingraftError(
            f"a worker does not know the branching rule {name!r}: importing {home!r} does not register it."
            " Register it at the top level of a module of its own, or verify with workers=0."
        )
    lookup("branching rule", name, RULES)


def taps_to_split(rule: str, dual: Dual, domains: Domains, evaluation: Evaluation) -> Tensor:
    """The taps (B,) that a rule chooses; one that cannot be split would go on forever, and is an error."""
    require_rule(rule)
    taps = RULES[rule](dual, domains, evaluation)
    if not bool(dual.splittable(domains).gather(0, taps[None]).all()):
        raise LingraftError(f"branching rule {rule!r} chose a tap that cannot be split. See `dual.splittable`.")
    return taps


def scores(dual: Dual, domains: Domains, evaluation: Evaluation) -> Tensor:
    """How much of the bound (T, B) the relaxation of each tap that can be split costs; −∞ for all others.

    For a ReLU it is [q]₋ times the upper line's intercept, the gap of the triangle at 0; taps with q ≥ 0 cost nothing
    there, and a small share of |q| times their reach keeps them in the order. What facets bound counts in full, too:
    they are fitted to the whole region, and a split makes the tap linear all the same. For a smooth tap, |q| times the
    gap between its lines in the middle of its interval.
    """
    reach = torch.minimum(domains.upper, -domains.lower)
    lines, q = evaluation.lines, evaluation.q
    score = -q.clamp(max=0) * lines.upper_intercept + (1e-4 * q.abs() + 1e-12) * reach
    if dual.smooth:
        middle = (domains.lower + domains.upper) / 2
        gap = (lines.upper_slope - lines.lower_slope) * middle + lines.upper_intercept - lines.lower_intercept
        score = torch.where(dual.relu, score, q.abs() * gap)
    return torch.where(dual.splittable(domains), score, -torch.inf)


@register("smart")
def choose(dual: Dual, domains: Domains, evaluation: Evaluation) -> Tensor:
    """The tap (B,) of each domain that leaves least to prove, among the best few by score.

    What is left is the sum of the children's negative bounds: the worse child alone, the usual measure, took about
    twice as many domains on the public problems.
    """
    top = scores(dual, domains, evaluation).topk(min(CANDIDATES, len(domains.lower)), dim=0)
    count = len(domains)
    lines = Relaxed(*(torch.cat([line, line], 1) for line in evaluation.lines))
    last = len(lines.share) - 1  # of the taps that have facets
    push = domains.split * domains.beta
    push, edge = torch.cat([push, push], 1), dual.edge(domains)
    edge = None if edge is None else edge.repeat(2)
    rows = dual.rows(domains, torch.arange(count, device=push.device).repeat(2))
    bounds = []
    for tap in top.indices:
        both, new = tap.repeat(2)[None], _split_lines(dual, domains, tap)
        old = [line.gather(0, both) for line in lines[:4]]
        for line, values in zip(lines[:4], new, strict=True):
            line.scatter_(0, both, values[None])
        if last >= 0:
            there = both.clamp(max=last)
            share = lines.share.gather(0, there)
            lines.share.scatter_(0, there, share * (both > last))
        bounds.append(dual.backward(rows, lines, push, edge).c)
        for line, values in zip(lines[:4], old, strict=True):
            line.scatter_(0, both, values)
        if last >= 0:
            lines.share.scatter_(0, there, share)
    children = torch.stack(bounds).view(-1, 2, count)
    if dual.smooth:  # new lines without β can be worse outside the new interval, and splits of no use would look best
        children = torch.maximum(children, evaluation.bound)
    left = -children.clamp(max=0).sum(1)
    left = torch.where(torch.isfinite(top.values), left, torch.inf)
    return top.indices.gather(0, left.argmin(0, keepdim=True))[0]


def _split_lines(dual: Dual, domains: Domains, tap: Tensor) -> Lines:
    """The lines (2B,) of each domain's `tap` in the children of a split of it, first in all upper sides."""
    columns = torch.arange(len(domains), device=tap.device)
    lower, upper = domains.lower[tap, columns], domains.upper[tap, columns]
    point = _point(dual, domains, tap)
    alpha = domains.alpha[tap, columns].repeat(2)
    return dual.lines_of(tap.repeat(2), torch.cat([point, lower]), torch.cat([upper, point]), alpha)


def _point(dual: Dual, domains: Domains, tap: Tensor) -> Tensor:
    """Where each domain's tap (B,) is split: a ReLU at 0, a smooth tap in the middle of its interval."""
    columns = torch.arange(len(domains), device=tap.device)
    middle = (domains.lower[tap, columns] + domains.upper[tap, columns]) / 2
    return torch.where(dual.relu[tap, 0], 0.0, middle)


def split(dual: Dual, domains: Domains, tap: Tensor, first: int = 0) -> Domains:
    """Both sides of the chosen tap (B,) of every domain: first all upper sides, then all lower ones.

    They become the nodes `first` … of the tree.
    """
    columns = torch.arange(len(domains), device=tap.device)
    both = domains.select(torch.cat([columns, columns]))
    point = _point(dual, domains, tap)
    lower_side = columns + len(domains)
    both.lower[tap, columns] = point
    both.split[tap, columns] = 1
    both.upper[tap, lower_side] = point
    both.split[tap, lower_side] = -1
    both.beta[tap, columns] = 0
    both.beta[tap, lower_side] = 0
    both.node = first + torch.arange(len(both), device=tap.device)
    return both
