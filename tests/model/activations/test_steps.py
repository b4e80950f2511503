"""Sign and floor: lines and bounds hold for both sides of every jump."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from record_grid import assert_holds, assert_holds_at, grid, intervals
from torch import Tensor

from lingraft.model.activations import Activation
from lingraft.model.activations.steps import FLOOR, SIGN

STEPS = {"sign": SIGN, "floor": FLOOR}


def assert_holds_for_both_sides(record: Activation, lower: Tensor, upper: Tensor) -> None:
    """Also where a point that is at a jump counts as left or right of it."""
    jumps = torch.arange(-12.0, 13.0, dtype=torch.float64)
    assert_holds(record, lower, upper, jumps)
    z = grid(lower, upper, jumps)
    for side in (-1e-9, 1e-9):
        at_jump = z == z.round() if record is FLOOR else z == 0
        assert_holds_at(record, lower, upper, z, torch.where(at_jump, record.value(z + side), record.value(z)))


@pytest.mark.parametrize("name", STEPS)
def test_on_many_intervals(name: str) -> None:
    assert_holds_for_both_sides(STEPS[name], *intervals(20.0))
    whole = torch.arange(-3.0, 4.0, dtype=torch.float64)
    lower, upper = (t.flatten() for t in torch.meshgrid(whole, whole, indexing="ij"))
    keep = lower <= upper
    assert_holds_for_both_sides(STEPS[name], lower[keep], upper[keep])


@settings(max_examples=30)
@given(st.sampled_from(sorted(STEPS)), st.floats(-1e4, 1e4), st.floats(0, 3))
def test_on_every_interval(name: str, start: float, length: float) -> None:
    lower = torch.tensor([start]).double()
    assert_holds_for_both_sides(STEPS[name], lower, lower + length)


@settings(max_examples=30)
@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_around_0(left: float, right: float) -> None:
    assert_holds_for_both_sides(SIGN, torch.tensor([-left]).double(), torch.tensor([right]).double())


@pytest.mark.parametrize("name", STEPS)
def test_lines_are_exact_where_there_is_no_jump(name: str) -> None:
    record = STEPS[name]
    lower, upper = torch.tensor([0.1, -0.8]).double(), torch.tensor([0.9, -0.1]).double()
    low, high = record.between(lower, upper)
    assert torch.equal(low, high)
    assert torch.equal(low, record.value(lower))
    lines = record.lines(lower, upper)
    assert torch.equal(lines.lower_intercept, lines.upper_intercept)
    assert not bool(lines.lower_slope.any() or lines.upper_slope.any())


def test_one_side_of_the_jump_is_known_where_the_other_is_short() -> None:
    lines = SIGN.lines(torch.tensor([-0.1]).double(), torch.tensor([1.0]).double())
    assert float(lines.lower_slope + lines.lower_intercept) == pytest.approx(1.0)
    assert float(lines.upper_slope) == 0


@pytest.mark.parametrize("name", STEPS)
def test_attacks_get_a_gradient(name: str) -> None:
    z = torch.tensor([-0.4, 0.3], requires_grad=True)
    (gradient,) = torch.autograd.grad(STEPS[name].value(z).sum(), z)
    assert bool((gradient > 0).all())
