"""Exact minima over a domain with HiGHS, through SciPy: mixed-integer while taps are open, linear in a leaf."""

import numpy as np
import torch
from torch import Tensor

from lingraft.verification.collapse import Collapsed
from lingraft.verification.dual import Domains
from lingraft.verification.leaf import solve_leaf, tap_rows


def exact_minimum(collapsed: Collapsed, domain: Domains, seconds: float) -> tuple[float, Tensor | None]:
    """A lower bound of the domain's margin that is its minimum up to the solver's tolerance, and a minimizer (n,).

    Taps that are open in the domain get a binary variable each, so the answer is exact for any ReLU domain; −infinity
    where the solver gave no answer in time. Where none is open, the bound is recomputed in float64 (`leaf.py`).
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # here, as it takes a second and few images need it
    from scipy.sparse import csr_array, hstack, identity

    if not bool(((domain.lower < 0) & (domain.upper > 0)).any()):
        bound, _, point = solve_leaf(collapsed, domain, seconds)
        return bound, point
    n, count = len(collapsed.center), collapsed.count
    lower, upper = domain.lower[:, 0].cpu().numpy(), domain.upper[:, 0].cpu().numpy()
    P, Q, r = tap_rows(collapsed)
    on, off = lower >= 0, (upper <= 0) & (lower < 0)
    open_ = ~on & ~off
    binaries = int(open_.sum())
    # variables: x (n), h (T), a (binaries, 1 = on); z = P x + Q h + r
    choose = csr_array(identity(count))[open_]
    none = csr_array((count, binaries))
    z = hstack([P, Q, none]).tocsr()
    h = hstack([csr_array((count, n)), csr_array(identity(count)), none]).tocsr()
    a = hstack([csr_array((binaries, n + count)), csr_array(identity(binaries))]).tocsr()
    gap = (h - z).tocsr()
    wide_lower, wide_upper = csr_array(np.diag(lower[open_])), csr_array(np.diag(upper[open_]))
    infinity = np.inf
    rows = [
        LinearConstraint(gap[on], r[on], r[on]),  # on: h = z
        LinearConstraint(z[on], lower[on] - r[on], infinity),  # and z stays on its side
        LinearConstraint(z[off], -infinity, upper[off] - r[off]),
        LinearConstraint(gap[open_], r[open_], infinity),  # h ≥ z
        LinearConstraint(choose @ h - wide_upper @ a, -infinity, 0),  # h ≤ u·a
        LinearConstraint(gap[open_] - wide_lower @ a, -infinity, r[open_] - lower[open_]),  # h ≤ z − l·(1 − a)
    ]
    center, radius = collapsed.center.cpu().numpy(), collapsed.radius.cpu().numpy()
    highest = np.where(off, 0.0, np.maximum(upper, 0.0))
    box = Bounds(
        np.concatenate([center - radius, np.zeros(count), np.zeros(binaries)]),
        np.concatenate([center + radius, highest, np.ones(binaries)]),
    )
    margin = int(domain.margin[0])
    cost = torch.cat([collapsed.p[:, margin], collapsed.q[:, margin]]).cpu().numpy()
    result = milp(
        np.concatenate([cost, np.zeros(binaries)]),
        integrality=np.concatenate([np.zeros(n + count), np.ones(binaries)]),
        bounds=box,
        constraints=[row for row in rows if row.A.shape[0]],
        options={"time_limit": max(seconds, 0.0), "mip_rel_gap": 0.0},  # HiGHS ignores limits below 0
    )
    constant = float(collapsed.c[margin])
    point = None if result.x is None else torch.from_numpy(result.x[:n]).to(collapsed.center)
    if result.status == 2:
        return float("inf"), None
    if result.status == 0:
        bound = result.mip_dual_bound if binaries else result.fun
        return float(bound) + constant, point
    dual_bound = getattr(result, "mip_dual_bound", None)
    return (float(dual_bound) + constant if dual_bound is not None else float("-inf")), point
