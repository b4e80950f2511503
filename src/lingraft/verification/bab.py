"""Branch and bound over the collapsed network (β-CROWN, Wang et al. 2021), domains in tensors, best first."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.verification.ascent import improve
from lingraft.verification.branching import choose
from lingraft.verification.collapse import Collapsed
from lingraft.verification.dual import Domains, Dual
from lingraft.verification.exact import leaf_minimum

#: A margin counts as proven when its bound, recomputed in float64, exceeds this.
MARGIN = 1e-6

#: Steps on the multipliers of a new domain.
STEPS = 12


@dataclass
class Outcome:
    """How the search ended: "verified", "falsified" (with a witness) or "unknown" (with a reason)."""

    verdict: str
    reason: str | None = None
    witness: Tensor | None = None
    domains: int = 0


class Pool:
    """Open domains as rows of tensors; multipliers are kept in half precision, as they only start the next search."""

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Domains]] = []
        self.size = 0
        self.bytes = 0

    def add(self, bounds: Tensor, domains: Domains) -> None:
        """Put domains in, with their bounds."""
        if not len(domains):
            return
        kept = Domains(
            domains.margin, domains.lower, domains.upper, domains.split, domains.alpha.half(), domains.beta.half()
        )
        self.parts.append((bounds, kept))
        self.size += len(domains)
        self.bytes += len(domains) * domains.lower.shape[0] * 13

    def take(self, count: int) -> Domains:
        """Take the `count` domains with the lowest bounds out."""
        bounds = torch.cat([b for b, _ in self.parts])
        domains = _joined([d for _, d in self.parts])
        order = bounds.argsort()
        taken, left = order[:count], order[count:]
        self.parts, self.size, self.bytes = [], 0, 0
        if len(left):
            self.parts = [(bounds[left], domains.select(left))]
            self.size, self.bytes = len(left), len(left) * domains.lower.shape[0] * 13
        return domains.select(taken).to(domains.lower.dtype)

    def lowest(self) -> float:
        """The lowest bound of an open domain."""
        return min(float(b.min()) for b, _ in self.parts) if self.parts else float("inf")


def _joined(parts: list[Domains]) -> Domains:
    return Domains(
        torch.cat([d.margin for d in parts]),
        *(torch.cat([getattr(d, n) for d in parts], dim=1) for n in ("lower", "upper", "split", "alpha", "beta")),
    )


def search(
    collapsed: Collapsed,
    root: Domains,
    bounds: Tensor,
    dtype: torch.dtype,
    deadline: float,
    memory: float,
    attack: Callable[[Tensor], Tensor | None],
    log: Callable[[str], None] | None = None,
) -> Outcome:
    """Split domains until every margin is proven, a witness is found, or time or memory runs out.

    `attack` takes images (N, n) in the inner order and gives a witness or None.
    """
    dual, exact = Dual(collapsed, dtype), Dual(collapsed, torch.float64)
    pool = Pool()
    pool.add(bounds, root)
    visited, batch = 0, 32
    while pool.size:
        if time.monotonic() > deadline:
            return Outcome("unknown", "time", domains=visited)
        if pool.bytes > memory:
            return Outcome("unknown", "memory", domains=visited)
        started = time.monotonic()
        parents = pool.take(batch)
        evaluation = dual.evaluate(parents)
        witness = attack(evaluation.minimizer[:, evaluation.bound.argsort()[:4]].t())
        if witness is not None:
            return Outcome("falsified", witness=witness, domains=visited)
        closed = ~(dual.open(parents)).any(0)
        if bool(closed.any()):
            outcome = _leaves(collapsed, exact, parents.select(closed.nonzero().flatten()), attack, deadline)
            if outcome is not None:
                outcome.domains = visited
                return outcome
            keep = (~closed).nonzero().flatten()
            if not len(keep):
                continue
            parents = parents.select(keep)
            evaluation = dual.evaluate(parents)
        tap = choose(dual, parents, evaluation)
        children = split(parents, tap)
        visited += len(children)
        best, children = improve(dual, children, STEPS, enough=2 * MARGIN)
        proven = best > MARGIN
        if bool(proven.any()):
            columns = proven.nonzero().flatten()
            proven[columns] = exact.bound(children.select(columns).to(torch.float64)) > MARGIN
        rest = (~proven).nonzero().flatten()
        pool.add(best[rest], children.select(rest))
        spent = time.monotonic() - started
        if log:
            log(f"{visited} visited, {pool.size} open, lowest {pool.lowest():.4f}, batch {batch}, {spent:.2f} s")
        batch = max(8, min(batch * 2, 1024) if spent < 0.4 else batch // 2 if spent > 1.2 else batch)
    return Outcome("verified", domains=visited)


def split(parents: Domains, tap: Tensor) -> Domains:
    """Both sides of the chosen tap (B,) of every domain: first all with z ≥ 0, then all with z ≤ 0."""
    columns = torch.arange(len(parents), device=tap.device)
    both = parents.select(torch.cat([columns, columns]))
    count = len(parents)
    both.lower[tap, columns] = 0
    both.split[tap, columns] = 1
    both.upper[tap, columns + count] = 0
    both.split[tap, columns + count] = -1
    both.beta[tap, columns] = 0
    both.beta[tap, columns + count] = 0
    return both


def _leaves(
    collapsed: Collapsed, exact: Dual, leaves: Domains, attack: Callable[[Tensor], Tensor | None], deadline: float
) -> Outcome | None:
    """Decide domains without an open tap by linear programming; None if all of them are proven."""
    for i in range(len(leaves)):
        leaf = leaves.select(torch.tensor([i], device=leaves.margin.device)).to(torch.float64)
        value, point = leaf_minimum(collapsed, leaf, max(1.0, deadline - time.monotonic()))
        if value > MARGIN:
            continue
        witness = attack(point[None]) if point is not None else None
        if witness is not None:
            return Outcome("falsified", witness=witness)
        return Outcome("unknown", "numerical")
    return None
