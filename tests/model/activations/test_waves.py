"""Sine and cosine: lines and bounds on intervals of all lengths, near 0 and far from it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from record_grid import assert_holds, intervals

from lingraft.model.activations.waves import COSINE, SINE

WAVES = {"sine": SINE, "cosine": COSINE}


@pytest.mark.parametrize("name", WAVES)
def test_the_gap_is_that_of_the_best_parallel_lines(name: str) -> None:
    lower = torch.tensor([-1.0, 0.0, 2.0, -3.0, 0.5, 40.0]).double()
    upper = lower + torch.tensor([0.5, 2.0, 4.0, 6.5, 9.0, 30.0]).double()
    z = lower[:, None] + torch.linspace(0, 1, 3001).double() * (upper - lower)[:, None]
    slopes = torch.linspace(-1, 1, 801).double()
    rest = WAVES[name].value(z) - slopes[:, None, None] * z
    seen = (rest.amax(2) - rest.amin(2)).amin(0)
    torch.testing.assert_close(WAVES[name].gap(lower, upper), seen, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("name", WAVES)
def test_on_intervals_with_ends_at_peaks_and_inflections(name: str) -> None:
    quarters = torch.arange(-14, 15).double() * math.pi / 2
    lower, upper = (t.flatten() for t in torch.meshgrid(quarters, quarters, indexing="ij"))
    keep = lower <= upper
    for move in (0.0, 1e-9, -1e-9, 1e-3, 200 * math.pi):
        assert_holds(WAVES[name], lower[keep] + move, upper[keep] + 2 * abs(move) * (move < 1) + move, quarters)


@pytest.mark.parametrize("name", WAVES)
def test_on_many_intervals(name: str) -> None:
    assert_holds(WAVES[name], *intervals(1e4))


@settings(max_examples=40)
@given(st.sampled_from(sorted(WAVES)), st.floats(-1e5, 1e5), st.floats(0, 12))
def test_on_every_interval(name: str, start: float, length: float) -> None:
    lower = torch.tensor([start]).double()
    assert_holds(WAVES[name], lower, lower + length)


def test_lines_follow_the_curve_where_it_is_almost_straight() -> None:
    lines = SINE.lines(torch.tensor([-0.1]).double(), torch.tensor([0.1]).double())
    assert float(lines.lower_slope) == pytest.approx(1.0, abs=0.01)
    assert float(lines.upper_intercept - lines.lower_intercept) < 1e-3
