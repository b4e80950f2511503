"""Halfspaces below the margins: no point with a margin of 0 or less is clipped off, and combinations are bounds."""

from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft.solver.halfspaces import clipped, combined

SEEDS = st.integers(0, 10**6)


def _case(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Boxes (B, n), bounds (B, L, K) and rows of functions, points (P, n) of each box and the functions' values there."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64)  # noqa: E731
    center, radius = draw(4, 3), draw(4, 3).abs()
    radius[0, 0] = 0
    lower, upper = center - radius, center + radius
    rows = draw(4, 2, 3, 3)
    rows[1, 0, 0, 1] = 0
    constant = draw(4, 2, 3)
    least = (rows.clamp(min=0) * lower[:, None, None] + rows.clamp(max=0) * upper[:, None, None]).sum(3)
    share = torch.rand(4, 500, 3, generator=generator, dtype=torch.float64)
    share[:, :250] = share[:, :250].round()
    points = lower[:, None] + (upper - lower)[:, None] * share
    points = torch.minimum(torch.maximum(points, lower[:, None]), upper[:, None])
    values = torch.einsum("blkn,bpn->bplk", rows, points) + constant[:, None]
    return lower, upper, constant + least, rows, points, values


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_no_point_with_a_margin_that_is_not_positive_is_lost(seed: int) -> None:
    lower, upper, below, rows, points, values = _case(seed)
    open_ = torch.rand(4, 2, generator=torch.Generator().manual_seed(seed)) < 0.7
    low, high = clipped(lower, upper, below, rows, open_)
    assert bool((low >= lower).all() and (high <= upper).all())
    wrong = ((values.amax(3) <= 0) & open_[:, None]).any(2)
    inside = ((points >= low[:, None]) & (points <= high[:, None])).all(2)
    assert bool((inside | ~wrong).all())


def test_clipping_cuts_at_the_halfspace() -> None:
    lower, upper = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    rows = torch.tensor([2.0, -1.0], dtype=torch.float64).view(1, 1, 1, 2)
    below = torch.full((1, 1, 1), -0.5, dtype=torch.float64)  # 2·x − y + 0.5 is the function
    low, high = clipped(lower, upper, below, rows, torch.ones(1, 1, dtype=torch.bool))
    torch.testing.assert_close(high, torch.tensor([[0.25, 1.0]], dtype=torch.float64), atol=1e-5, rtol=0)
    torch.testing.assert_close(low, torch.tensor([[0.0, 0.5]], dtype=torch.float64), atol=1e-5, rtol=0)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_a_combination_is_below_the_largest_function(seed: int) -> None:
    lower, upper, below, rows, points, values = _case(seed)
    bound, row, shares = combined(below, rows, (upper - lower) / 2)
    assert bool((shares >= 0).all())
    torch.testing.assert_close(shares.sum(2), torch.ones_like(bound))
    torch.testing.assert_close((shares[..., None] * rows).sum(2), row)
    assert bool((bound >= below.amax(2)).all())
    least = (row.clamp(min=0) * lower[:, None] + row.clamp(max=0) * upper[:, None]).sum(2)
    above = torch.einsum("bln,bpn->bpl", row, points) - least[:, None]
    assert bool((values.amax(3) >= bound[:, None] + above - 1e-9).all())


def test_two_functions_prove_together_what_neither_proves() -> None:
    rows = torch.tensor([[1.0], [-1.0]], dtype=torch.float64).view(1, 1, 2, 1)
    below = torch.full((1, 1, 2), -0.5, dtype=torch.float64)  # x + 0.5 and 0.5 − x on [−1, 1]: the larger is above 0.5
    bound, _, shares = combined(below, rows, torch.ones(1, 1, dtype=torch.float64))
    torch.testing.assert_close(bound, torch.full((1, 1), 0.5, dtype=torch.float64))
    torch.testing.assert_close(shares, torch.full((1, 1, 2), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_three_functions_prove_together_in_any_order(order: tuple[int, ...]) -> None:
    """x − u, y − v and u + v − x − y + 0.1, between −1 and 1: never all below 0, as they add up to 0.1."""
    rows = torch.tensor([[1, 0, -1, 0], [0, 1, 0, -1], [-1, -1, 1, 1]], dtype=torch.float64)[list(order)]
    below = torch.tensor([0.0, 0.0, 0.1], dtype=torch.float64)[list(order)] - rows.abs().sum(1)
    bound, _, shares = combined(below[None, None], rows[None, None], torch.ones(1, 4, dtype=torch.float64))
    torch.testing.assert_close(bound, torch.full((1, 1), 0.1 / 3, dtype=torch.float64))
    torch.testing.assert_close(shares, torch.full((1, 1, 3), 1 / 3, dtype=torch.float64))


def test_functions_that_overflow_clip_nothing() -> None:
    lower, upper, below, rows, _, _ = _case(0)
    open_ = torch.ones(4, 2, dtype=torch.bool)
    below[0], rows[1, :, :, 0], below[2], rows[3] = torch.inf, torch.inf, torch.nan, torch.nan
    low, high = clipped(lower, upper, below, rows, open_)
    assert torch.equal(low, lower)
    assert torch.equal(high, upper)
