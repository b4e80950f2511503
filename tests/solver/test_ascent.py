"""Ascent on the multipliers makes bounds better, and stops where they are good enough."""

import random_networks as nets
import torch

from lingraft.solver.ascent import improve
from lingraft.solver.dual import Dual, root_domains


def test_improve_improves() -> None:
    """The last multipliers are kept, not the best: in a short search a bound may fall, but rarely, and not by much."""
    gains, start_gaps = [], []
    for seed in range(1, 40, 2):
        collapsed, _, _, margins = nets.with_taps(seed, "relu", 0.5, False)
        dual = Dual(collapsed, torch.float64)
        domains = root_domains(collapsed, torch.float64)
        before = dual.bound(domains)
        after, improved = improve(dual, domains, 20)
        torch.testing.assert_close(dual.bound(improved), after)
        gains.append(after - before)
        start_gaps.append(margins.amin(1) - before)
    gain, gap = torch.cat(gains), torch.cat(start_gaps)
    assert bool((gain >= -0.05 * gap - 1e-9).all())
    assert float((gain > 0.02 * gap).double().mean()) > 0.5


def test_enough_is_enough() -> None:
    """A domain whose bound exceeds `enough` keeps its multipliers while others go on."""
    collapsed, *_ = nets.with_taps(3, "relu", 0.5, False)
    dual = Dual(collapsed, torch.float64)
    domains = root_domains(collapsed, torch.float64)
    before = dual.bound(domains)
    enough = float(before.median())
    after, improved = improve(dual, domains, 5, enough=enough)
    same = (improved.alpha == domains.alpha).all(0)
    assert torch.equal(same, before > enough)
    assert torch.equal(after[same], before[same])
