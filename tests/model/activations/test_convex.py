"""Exponential, reciprocal and square root: lines and bounds on intervals of all kinds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from record_grid import assert_holds, intervals

from lingraft.model.activations.convex import EXPONENTIAL, RECIPROCAL, ROOT

RECORDS = {record.name: record for record in (EXPONENTIAL, RECIPROCAL, ROOT)}


def two(one: float, other: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([min(one, other)]).double(), torch.tensor([max(one, other)]).double()


def test_on_many_intervals() -> None:
    assert_holds(EXPONENTIAL, *intervals(300.0))
    lower, upper = intervals(1e5, low=1e-6)
    assert_holds(RECIPROCAL, lower, upper)
    assert_holds(RECIPROCAL, -upper, -lower)
    assert_holds(ROOT, *intervals(1e5, low=0.0))


@settings(max_examples=30)
@given(st.floats(-600, 600), st.floats(-600, 600))
def test_exponentials_on_every_interval(one: float, other: float) -> None:
    assert_holds(EXPONENTIAL, *two(one, other))


@settings(max_examples=30)
@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9), st.booleans())
def test_reciprocals_on_every_interval(one: float, other: float, negative: bool) -> None:
    sign = -1 if negative else 1
    assert_holds(RECIPROCAL, *two(sign * one, sign * other))


@settings(max_examples=30)
@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_roots_on_every_interval(one: float, other: float) -> None:
    assert_holds(ROOT, *two(one, other))


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (-1.0, 0.0), (0.0, 0.0)])
def test_a_reciprocal_has_no_bounds_where_it_may_divide_by_0(low: float, high: float) -> None:
    lower, upper = RECIPROCAL.between(*two(low, high))
    assert lower.item() == -math.inf
    assert upper.item() == math.inf
    lines = RECIPROCAL.lines(*two(low, high))
    assert not torch.isfinite(lines.lower_intercept + lines.upper_intercept).any()


def test_a_root_has_no_bounds_below_0_but_for_rounding() -> None:
    assert not torch.isfinite(ROOT.between(*two(-0.1, 1.0))[0]).any()
    assert not torch.isfinite(ROOT.lines(*two(-0.1, 1.0)).lower_intercept).any()
    assert_holds(ROOT, torch.zeros(1).double(), torch.ones(1).double())
    lines = ROOT.lines(*two(-1e-12, 1.0))
    z = torch.linspace(0, 1, 1000).double()
    assert bool((lines.lower_slope * z + lines.lower_intercept <= z.sqrt()).all())
    assert bool((lines.upper_slope * z + lines.upper_intercept >= z.sqrt()).all())


@pytest.mark.parametrize("name", RECORDS)
def test_the_gap_is_that_of_the_best_parallel_lines(name: str) -> None:
    record = RECORDS[name]
    lower, upper = torch.tensor([0.2, 1.0, 0.5]).double(), torch.tensor([0.3, 4.0, 20.0]).double()
    z = lower[:, None] + torch.linspace(0, 1, 2001).double() * (upper - lower)[:, None]
    chord = (record.value(upper) - record.value(lower)) / (upper - lower)
    rest = record.value(z) - chord[:, None] * z
    torch.testing.assert_close(record.gap(lower, upper), rest.amax(1) - rest.amin(1), rtol=1e-3, atol=1e-6)


def test_below_zero_there_are_no_roots() -> None:
    """However little is below, and however large the rest of the interval is: the model gives NaN there."""
    low, high = ROOT.between(*two(-1e-30, 1e8))
    assert low.item() == -math.inf
    assert high.item() == math.inf
    assert not torch.isfinite(ROOT.lines(*two(-1e-30, 1e8)).lower_intercept).any()
