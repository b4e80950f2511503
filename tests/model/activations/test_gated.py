"""Where GELU, SiLU and Mish change their form, and where they are lowest."""

import math

import pytest
import torch

from lingraft import LingraftError
from lingraft.model.activations import Activation
from lingraft.model.activations.curve import Curve
from lingraft.model.activations.gated import HARDSWISH, MISH, SILU, gelu

RECORDS = {"gelu": gelu(), "gelu tanh": gelu("tanh"), "silu": SILU, "mish": MISH}


def second_derivative(record: Activation, z: torch.Tensor) -> torch.Tensor:
    z = z.clone().requires_grad_()
    (first,) = torch.autograd.grad(record.value(z).sum(), z, create_graph=True)
    return torch.autograd.grad(first.sum(), z)[0]


@pytest.mark.parametrize("name", RECORDS)
def test_inflections_are_where_the_second_derivative_changes_its_sign(name: str) -> None:
    curve = RECORDS[name].lines.__self__  # type: ignore[attr-defined]
    assert isinstance(curve, Curve)
    breaks = torch.tensor(curve.breaks, dtype=torch.float64)
    for step in (1e-4, 1e-2, 1.0):
        inside, outside = breaks - breaks.sign() * step, breaks + breaks.sign() * step
        assert bool((second_derivative(RECORDS[name], inside) > 0).all())
        assert bool((second_derivative(RECORDS[name], outside) < 0).all())
    if name == "gelu":
        assert curve.breaks == (-math.sqrt(2), math.sqrt(2))


@pytest.mark.parametrize("record", [*RECORDS.values(), HARDSWISH], ids=lambda record: record.name)
def test_bounds_on_an_interval_are_reached(record: Activation) -> None:
    generator = torch.Generator().manual_seed(0)
    lower, upper = (12 * torch.rand(2, 200, generator=generator, dtype=torch.float64) - 8).sort(0).values
    low, high = record.between(lower, upper)
    values = record.value(lower + torch.linspace(0, 1, 4001, dtype=torch.float64)[:, None] * (upper - lower))
    torch.testing.assert_close(low, values.amin(0), rtol=0, atol=1e-5)
    torch.testing.assert_close(high, values.amax(0), rtol=0, atol=1e-9)
    assert bool((low <= values.amin(0)).all())
    assert bool((high >= values.amax(0)).all())


def test_another_approximation_is_refused() -> None:
    with pytest.raises(LingraftError, match="Use 'none' or 'tanh'"):
        gelu("erf")
