"""The lines of a ReLU lie below and above it on the whole interval, and its chord is the smallest one."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.model.activations.relu import relax_relu


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(0, 1e3), st.floats(0, 1))
def test_relu_lines(low: float, width: float, alpha: float) -> None:
    lower, upper = torch.tensor([low], dtype=torch.float64), torch.tensor([low + width], dtype=torch.float64)
    lines = relax_relu(lower, upper)
    z = torch.linspace(low, low + width, 401, dtype=torch.float64)
    relu = z.clamp(min=0)
    rounding = 1e-12 * (abs(low) + width)
    assert bool((lines.upper_slope * z + lines.upper_intercept >= relu - rounding).all())
    assert bool((lines.lower_slope * z + lines.lower_intercept <= relu + rounding).all())
    if low < 0 < low + width:
        assert bool((alpha * z <= relu).all())  # any slope in [0, 1] may replace the lower one
        assert 0 <= float(lines.lower_slope) <= 1
        ends = lines.upper_slope * torch.stack([lower, upper]) + lines.upper_intercept
        torch.testing.assert_close(ends, torch.stack([lower, upper]).clamp(min=0), rtol=0, atol=rounding)
    else:
        assert torch.equal(lines.lower_slope, lines.upper_slope)
        assert float(lines.lower_slope) == float(low >= 0)
        assert float(lines.lower_intercept) == float(lines.upper_intercept) == 0


def test_relu_chord_is_the_smallest() -> None:
    lower, upper = -torch.rand(1000).double() * 5, torch.rand(1000).double() * 5
    lines = relax_relu(lower, upper)
    torch.testing.assert_close(lines.upper_slope, upper / (upper - lower))
    torch.testing.assert_close(lines.upper_intercept, -lower * upper / (upper - lower))
    assert torch.equal(lines.lower_slope, (upper > -lower).double())


def test_a_width_that_overflows_gives_no_line() -> None:
    huge = torch.tensor([1.5e308], dtype=torch.float64)
    lines = relax_relu(-huge, huge)
    assert not bool(lines.upper_slope * huge + lines.upper_intercept < huge)
    assert bool(lines.upper_slope.isnan().all())
