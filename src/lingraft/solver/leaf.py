"""Leaves of the search, in which every tap is decided: a linear program whose answer is not taken on trust.

A solver works with tolerances, and calls a badly scaled program infeasible that is not. So only its multipliers are
used: whatever they are, the Lagrangian bound that they give is sound, and it is computed here in float64. For the same
reason the constraints are elastic: each may be violated at a price. The program then always has a solution, and where a
leaf is empty, a high price makes its bound positive.
"""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains

#: Prices of a violation, in how far the margin reaches over the leaf for each unit in which the taps are measured. They
#: make β large, and what rounding does to a row along with it: the proof, `Dual.bound` in float64, takes that off.
PRICES = (1e2, 1e5, 1e8)


def solve_leaf(collapsed: Collapsed, leaf: Domains, seconds: float) -> tuple[float, Tensor, Tensor | None]:
    """A lower bound of the leaf's margin, its minimum but for the solver's errors; its β (T,); a minimizer (n,).

    −infinity where the solver gave no answer in time; a positive bound, whatever its size, where the leaf is empty.
    """
    program, deadline = _Program(collapsed, leaf), time.monotonic() + seconds
    best, multipliers, point = -np.inf, np.zeros(collapsed.count), None
    for price in PRICES:
        answer = program.solve(price, deadline - time.monotonic())
        if answer is None:
            break
        x, beta, violation = answer
        bound = program.bound(beta)
        if bound > best:
            best, multipliers = bound, beta
        point = torch.from_numpy(x).to(collapsed.center)
        if best > 0 or violation < 1e-9:
            break
    return best, torch.from_numpy(multipliers).to(collapsed.center), point


class _Program:
    """min p·x + q·h + c where h = z on taps that are on, 0 on others, and z stays on its side.

    Solved for x in units of the box's radius and h in units of the taps' bounds, so that the scale of the weights does
    not matter; all units are powers of two, which round nothing.
    """

    def __init__(self, collapsed: Collapsed, leaf: Domains):
        margin = int(leaf.margin[0])
        self.collapsed, self.n = collapsed, len(collapsed.center)
        self.on = leaf.lower[:, 0].cpu().numpy() >= 0
        self.p, self.q = collapsed.p[:, margin].cpu().numpy(), collapsed.q[:, margin].cpu().numpy()
        self.c = float(collapsed.c[margin])
        self.center, self.radius = collapsed.center.cpu().numpy(), collapsed.radius.cpu().numpy()
        self.P, self.Q, self.r = tap_rows(collapsed)
        self.unit = _power_of_two(
            np.maximum(np.abs(collapsed.lower.cpu().numpy()), np.abs(collapsed.upper.cpu().numpy()))
        )

    def solve(self, price: float, seconds: float) -> tuple[np.ndarray, np.ndarray, float] | None:
        """A minimizer (n,), multipliers β ≥ 0 (T,) of the sides, and the largest violation; None if there are none."""
        # slow to import, and few searches come here
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, diags_array, hstack, identity

        if seconds <= 0:
            return None
        count, on = len(self.on), self.on
        box = _power_of_two(self.radius)
        down = diags_array(1 / self.unit)
        P, Q = down @ self.P @ diags_array(box), down @ self.Q @ diags_array(self.unit)
        cost = np.concatenate([self.p * box, self.q * self.unit])
        scale = float(_power_of_two(np.abs(cost).max(initial=0.0)))
        sign = np.where(on, -1.0, 1.0)  # −z ≤ 0 on the upper sides, z ≤ 0 on the lower ones
        slack = identity(count, format="csr")
        r = self.r / self.unit
        sides = hstack([diags_array(sign) @ hstack([P, Q]), -slack]).tocsr()
        gap = hstack([-P, identity(count) - Q, csr_array((count, count))]).tocsr()[on]
        start, reach = self.center / box, self.radius / box
        bounds = np.concatenate([
            np.stack([start - reach, start + reach], 1),
            np.stack([np.where(on, -np.inf, 0.0), np.where(on, np.inf, 0.0)], 1),
            np.stack([np.zeros(count), np.full(count, np.inf)], 1),
        ])  # fmt: skip
        result = linprog(
            np.concatenate([cost / scale, np.full(count, price)]),
            A_ub=sides if count else None,
            b_ub=-sign * r if count else None,
            A_eq=gap if on.any() else None,
            b_eq=r[on] if on.any() else None,
            bounds=bounds,
            options={"time_limit": seconds},
        )
        if result.x is None or result.status != 0:
            return None
        beta = np.maximum(-result.ineqlin.marginals, 0.0) * scale / self.unit if count else np.zeros(0)
        violation = float(result.x[self.n + count :].max(initial=0.0))
        return result.x[: self.n] * box, beta, violation

    def bound(self, beta: np.ndarray) -> float:
        """min p·x + q·h + c − β·(how far inside its side each tap is) over the box, for any β ≥ 0."""
        p, q, c = self.p.copy(), self.q.copy(), self.c
        slope = np.zeros_like(q)
        for taps in reversed(self.collapsed.taps):
            here = slice(taps.first, taps.last)
            slope[here] = np.where(self.on[here], q[here] - beta[here], beta[here])
            q += slope[here] @ self.Q[here]
        c += float(slope @ self.r)
        p += slope @ self.P
        value = c + float(p @ self.center) - float(np.abs(p) @ self.radius)
        return value if np.isfinite(value) else -np.inf


def _power_of_two(size: Any) -> Any:
    """The power of two at or below each size, 1 for 0."""
    return np.where(size > 0, np.exp2(np.floor(np.log2(np.where(size > 0, size, 1.0)))), 1.0)


def tap_rows(collapsed: Collapsed) -> tuple[Any, Any, np.ndarray]:
    """z = P x + Q h + r of all taps as sparse matrices; Q (T, T) is strictly lower triangular."""
    from scipy.sparse import csr_array, hstack, vstack  # slow to import

    n, total = len(collapsed.center), collapsed.count
    P, Q = [csr_array((0, n))], [csr_array((0, total))]
    for taps in collapsed.taps:
        P.append(csr_array(taps.P.dense().cpu().numpy()))
        before = csr_array(taps.Q.dense().cpu().numpy())
        Q.append(hstack([before, csr_array((taps.last - taps.first, total - taps.first))]))
    r = torch.cat([collapsed.c[:0], *[taps.r for taps in collapsed.taps]]).cpu().numpy()
    return vstack(P).tocsr(), vstack(Q).tocsr(), r
