"""Which tap to split: filtered smart branching (De Palma et al. 2021) over scores in the manner of BaBSR."""

import torch
from torch import Tensor

from lingraft.verification.dual import Domains, Dual, Evaluation

#: Taps of each domain whose children are really bounded before one is chosen.
CANDIDATES = 4


def scores(dual: Dual, domains: Domains, evaluation: Evaluation) -> Tensor:
    """How much of the bound (T, B) the relaxation of each open tap costs: [q]₋ times the upper line's intercept.

    Taps with q ≥ 0 cost nothing there; a small share of |q| times their reach keeps them in the order.
    """
    reach = torch.minimum(domains.upper, -domains.lower)
    score = -evaluation.q.clamp(max=0) * evaluation.lines.upper_intercept + 1e-4 * evaluation.q.abs() * reach
    return torch.where(dual.open(domains), score + 1e-12 * reach, -torch.inf)


def choose(dual: Dual, domains: Domains, evaluation: Evaluation) -> Tensor:
    """The tap (B,) of each domain whose worse child has the best bound, among the best few by score."""
    from lingraft.verification.bab import split

    score = scores(dual, domains, evaluation)
    top = score.topk(min(CANDIDATES, len(score)), dim=0)
    count = len(domains)
    best = torch.full((count,), -torch.inf, dtype=dual.dtype, device=score.device)
    chosen = top.indices[0]
    for value, tap in zip(top.values, top.indices, strict=True):
        usable = torch.isfinite(value)
        if not bool(usable.any()):
            break
        bounds = dual.bound(split(domains, tap))
        worse = torch.minimum(bounds[:count], bounds[count:]) + 1e-3 * torch.maximum(bounds[:count], bounds[count:])
        better = usable & (worse > best)
        best, chosen = torch.where(better, worse, best), torch.where(better, tap, chosen)
    return chosen
