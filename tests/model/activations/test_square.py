"""The square, which products of two values are written with."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lingraft.model.activations.soundness import require_sound
from lingraft.model.activations.square import SQUARE

ENDS = st.floats(-1e4, 1e4)


def test_its_record_holds() -> None:
    require_sound(SQUARE)


@given(ENDS, ENDS)
def test_lines_and_bounds_hold_on_every_interval(one: float, other: float) -> None:
    ends = torch.tensor([min(one, other)]).double(), torch.tensor([max(one, other)]).double()
    z = (ends[0] + torch.linspace(0, 1, 200).double() * (ends[1] - ends[0])).clamp(*ends)  # sums can round past the end
    lines = SQUARE.lines(*ends)
    assert bool((lines.lower_slope * z + lines.lower_intercept <= z * z).all())
    assert bool((lines.upper_slope * z + lines.upper_intercept >= z * z).all())
    low, high = SQUARE.between(*ends)
    assert bool(((z * z >= low) & (z * z <= high)).all())
