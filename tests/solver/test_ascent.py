"""Ascent on the multipliers makes bounds better, and stops where they are good enough."""

import random_networks as nets
import torch

from lingraft.solver.ascent import WINDOW, Adam, improve
from lingraft.solver.branching import scores, split
from lingraft.solver.dual import Dual, root_domains


def test_improve_improves() -> None:
    """The best multipliers are kept: no bound falls, and most rise."""
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
    assert bool((gain >= -1e-9).all())
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


def test_steps_end_where_they_gain_too_little() -> None:
    """Each domain has steps of its own: those that stop early leave the batch, and all come back in their places."""
    taken = []
    for seed in (1, 3, 5, 7):
        collapsed, *_ = nets.with_taps(seed, "relu", 0.5, False)
        dual = Dual(collapsed, torch.float64)
        root = root_domains(collapsed, torch.float64)
        domains = root.select(torch.arange(len(root)).repeat(3))
        children = split(dual, domains, scores(dual, domains, dual.evaluate(domains)).argmax(0))
        alone = [
            improve(dual, children.select(torch.tensor([i])), 30, worth=_hundredth)[0] for i in range(len(children))
        ]
        before = dual.steps
        bounds, improved = improve(dual, children, 30, worth=_hundredth)
        taken.append((dual.steps - before) / len(children))
        torch.testing.assert_close(bounds, torch.cat(alone))
        torch.testing.assert_close(dual.bound(improved), bounds)
        assert torch.equal(improved.margin, children.margin)
        dual.steps = 0
        improve(dual, children, 30, worth=lambda bounds: torch.full_like(bounds, torch.inf))
        assert dual.steps == 0, "no step is worth an infinite gain"
    assert WINDOW < sum(taken) / len(taken) < 30


def _hundredth(bounds: torch.Tensor) -> torch.Tensor:
    """A hundredth of what is missing to 5."""
    return (5 - bounds).abs() / 100


def test_gradients_whose_squares_are_infinite_leave_multipliers_numbers() -> None:
    adam = Adam(torch.zeros(2, 1), 0.0, 1.0)
    for _ in range(3):
        adam.ascend(torch.tensor([[1e20], [-1e30]]), 0.1)
    assert bool(torch.isfinite(adam.value).all())
    assert float(adam.value[0]) > 0
