"""The cube, which odd powers are written with."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from record_grid import assert_holds, intervals

from lingraft.model.activations.cube import CUBE

ENDS = st.floats(-1e4, 1e4)


def test_on_many_intervals() -> None:
    assert_holds(CUBE, *intervals(1e4))


@given(ENDS, ENDS)
def test_lines_and_bounds_hold_on_every_interval(one: float, other: float) -> None:
    assert_holds(CUBE, torch.tensor([min(one, other)]).double(), torch.tensor([max(one, other)]).double())


@pytest.mark.parametrize("ends", [(-1, 1), (-3, 1), (-1, 2), (-0.1, 5), (0, 2), (1, 4), (-4, -1), (-2, 0), (2, 2)])
def test_the_gap_is_the_least_spread(ends: tuple[float, float]) -> None:
    lower, upper = (torch.tensor([end]).double() for end in ends)
    z = lower + torch.linspace(0, 1, 401).double() * (upper - lower)
    slopes = torch.linspace(0, 3 * max(abs(end) for end in ends) ** 2, 1001).double()
    rest = z**3 - slopes[:, None] * z
    least = float((rest.amax(1) - rest.amin(1)).min())
    step = float(slopes[1] * (upper - lower))  # what a slope between those of the grid may gain
    assert float(CUBE.gap(lower, upper)) == pytest.approx(least, abs=step)


@given(ENDS, ENDS)
def test_lines_touch(one: float, other: float) -> None:
    """Both lines meet the cube somewhere on the interval, but for rounding."""
    lower, upper = torch.tensor([min(one, other)]).double(), torch.tensor([max(one, other)]).double()
    z = lower + torch.linspace(0, 1, 2001).double() * (upper - lower)
    size = float(torch.maximum(lower.abs(), upper.abs())) ** 3
    lines = CUBE.lines(lower, upper)
    assert float((z**3 - lines.lower_slope * z - lines.lower_intercept).min()) <= 1e-6 * size
    assert float((lines.upper_slope * z + lines.upper_intercept - z**3).min()) <= 1e-6 * size
