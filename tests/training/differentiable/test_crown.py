"""Linear bounds that can be trained on: those of the verifier, and sound line by line."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from crown_margins import crown_margins
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver.bounds import bound_sites, margin_crown
from lingraft.solver.budget import Budget
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.training.differentiable import (
    Interval,
)
from lingraft.training.differentiable.crown import relu_lines

SHAPE = (1, 4, 4)


Draw = Callable[..., tuple[Tensor, Tensor, Interval]]


def test_crown_is_that_of_the_verifier_with_the_same_intervals(network: nn.Module, some_box: Draw) -> None:
    _, labels, box = some_box(eps=0.15)
    ours = crown_margins(network, box, labels).detach()
    converted = Network.from_module(network, SHAPE)
    for i, label in enumerate(labels):
        others = [k for k in range(3) if k != label]
        spec = F.one_hot(label, 3).double() - torch.eye(3).double()[others]
        region = Region(box.lower[i], box.upper[i])
        same = bound_sites(converted, region, Budget(), "intervals")
        offset = torch.zeros(2, dtype=torch.float64)
        low, high = same.logits
        apart = (spec.clamp(min=0) @ low) + (spec.clamp(max=0) @ high)  # the verifier takes the better of both
        expected = margin_crown(converted, same, spec, offset)
        torch.testing.assert_close(torch.maximum(ours[i, others], apart), expected, atol=1e-9, rtol=0)


@settings(max_examples=60, deadline=None)
@given(st.floats(-3, 3), st.floats(0, 4), st.floats(0, 1), st.floats(0, 1))
def test_lines_hold_a_relu(lower: float, width: float, slope: float, part: float) -> None:
    x = Interval(*(torch.tensor(end, dtype=torch.float64) for end in (lower, lower + width)))
    lines = relu_lines(x, slope)
    z = lower + part * width
    value = max(z, slope * z)
    assert float(lines.lower_slope * z + lines.lower_intercept) <= value + 1e-9
    assert float(lines.upper_slope * z + lines.upper_intercept) >= value - 1e-9
