"""Softplus, ELU and CELU of other arguments than the usual: which are supported, and what a chord is for convex ones."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lingraft import LingraftError
from lingraft.model.activations import Activation
from lingraft.model.activations.exponential import celu, elu, softplus


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (elu, (-0.1,)),
        (elu, (float("inf"),)),
        (celu, (0.0,)),
        (celu, (float("nan"),)),
        (softplus, (0.0,)),
        (softplus, (1, 3)),
    ],
)
def test_what_is_refused(make: Callable[..., Activation], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(LingraftError, match=r"must be positive and finite|has a step"):
        make(*arguments)


@pytest.mark.parametrize("record", [softplus(2.0), elu(), elu(0.3), celu(0.5)], ids=lambda record: record.name)
def test_the_line_above_a_convex_function_is_its_chord(record: Activation) -> None:
    lower, upper = torch.tensor([[-3.0, -1.0, 0.5], [-2.0, 1.5, 4.0]], dtype=torch.float64)
    lines = record.lines(lower, upper)
    for end in (lower, upper):
        value = lines.upper_slope * end + lines.upper_intercept
        torch.testing.assert_close(value, record.value(end), rtol=0, atol=1e-7)


def test_the_same_arguments_give_the_same_record() -> None:
    assert elu(1) is elu(alpha=1.0)
    assert softplus(beta=2) is softplus(2.0, 20)
    assert celu(1.0).family is celu
