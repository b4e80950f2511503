"""Lines of curves hold on any interval, touch, and come close; a curve with a wrong form, break or sign is refused."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft import LingraftError
from lingraft.model.activations import Activation, Lines
from lingraft.model.activations.clipped import ABS, HARDSIGMOID, RELU6, clamp, clamp_max, clamp_min, hardtanh
from lingraft.model.activations.curve import Curve, root
from lingraft.model.activations.exponential import SELU, celu, elu, softplus
from lingraft.model.activations.gated import HARDSWISH, MISH, SILU, gelu
from lingraft.model.activations.sigmoid import SIGMOID, TANH
from lingraft.model.activations.soundness import require_sound

SMOOTH = {
    "gelu": gelu(),
    "gelu tanh": gelu("tanh"),
    "silu": SILU,
    "mish": MISH,
    "hardswish": HARDSWISH,
    "softplus": softplus(),
    "softplus 3": softplus(3.0),
    "elu": elu(),
    "elu 0.3": elu(0.3),
    "elu 2.5": elu(2.5),
    "celu 0.4": celu(0.4),
    "selu": SELU,
    "sigmoid": SIGMOID,
    "tanh": TANH,
}
LINES = {
    "relu6": RELU6,
    "hardtanh": hardtanh(-0.7, 1.1),
    "clamp": clamp(-0.4, 0.9),
    "clamp_min": clamp_min(0.25),
    "clamp_max": clamp_max(-2.0),
    "hardsigmoid": HARDSIGMOID,
    "abs": ABS,
}
RECORDS = {**SMOOTH, **LINES}


def curve_of(record: Activation) -> Curve:
    owner = record.lines.__self__  # type: ignore[attr-defined]
    assert isinstance(owner, Curve)
    return owner


def points_of(record: Activation, lower: float, upper: float) -> Tensor:
    """Fine and even, close to the ends, and close to the breaks."""
    near = torch.logspace(-12, 0, 49, dtype=torch.float64)
    close = [lower + near * (upper - lower), upper - near * (upper - lower)]
    around = [place + sign * 8 * near for place in (0.0, *curve_of(record).breaks) for sign in (-1, 1)]
    even = torch.linspace(lower, upper, 2001, dtype=torch.float64)
    return torch.cat([even, *close, *around]).clamp(lower, upper)


@pytest.mark.parametrize("name", RECORDS)
@settings(max_examples=40, deadline=None)
@given(
    middle=st.one_of(st.floats(-6, 6), st.floats(-60, 60), st.floats(-1e7, 1e7)),
    width=st.one_of(st.just(0.0), st.floats(0, 8), st.floats(0, 100), st.floats(-13, 9).map(lambda power: 10**power)),
)
def test_lines_hold_on_any_interval(name: str, middle: float, width: float) -> None:
    record = RECORDS[name]
    lower, upper = middle - width / 2, middle + width / 2
    ends = torch.tensor([[lower], [upper]], dtype=torch.float64)
    lines = record.lines(*ends)
    assert all(math.isfinite(float(line)) for line in lines)
    z = points_of(record, lower, upper)
    value = record.value(z)
    rounding = 8 * 2.0**-53 * (z.abs() + value.abs() + lines.lower_intercept.abs() + lines.upper_intercept.abs())
    assert bool((lines.lower_slope * z + lines.lower_intercept <= value + rounding).all())
    assert bool((lines.upper_slope * z + lines.upper_intercept >= value - rounding).all())
    low, high = record.between(*ends)
    assert bool((value >= low - rounding).all())
    assert bool((value <= high + rounding).all())


@pytest.mark.parametrize("name", RECORDS)
def test_lines_touch_and_come_close(name: str) -> None:
    """No line could be moved closer, and in the middle they are hardly farther apart than the closest parallel lines."""
    record, generator = RECORDS[name], torch.Generator().manual_seed(0)
    ends = 8 * torch.rand(2, 300, generator=generator, dtype=torch.float64) - 4
    lower, upper = ends.sort(0).values
    lines = record.lines(lower, upper)
    z = torch.stack([points_of(record, low, high) for low, high in zip(lower.tolist(), upper.tolist(), strict=True)], 1)
    value = record.value(z)
    assert float((value - lines.lower_slope * z - lines.lower_intercept).amin(0).max()) < 1e-5
    assert float((lines.upper_slope * z + lines.upper_intercept - value).amin(0).max()) < 1e-5
    middle = (lower + upper) / 2
    apart = (lines.upper_slope - lines.lower_slope) * middle + lines.upper_intercept - lines.lower_intercept
    assert float((apart - 1.1 * record.gap(lower, upper)).max()) < 0.02


@pytest.mark.parametrize("name", RECORDS)
def test_short_intervals_leave_next_to_nothing(name: str) -> None:
    """Far from bends, what is left between the lines falls with the square of the width."""
    record = RECORDS[name]
    places = torch.tensor([-5.3, -2.1, -0.6, 0.55, 1.9, 4.2], dtype=torch.float64)
    for width in (0.1, 0.01, 0.001):
        lines = record.lines(places, places + width)
        ends = [(lines[2] - lines[0]) * z + lines[3] - lines[1] for z in (places, places + width)]
        assert float(torch.stack(ends).max()) < 1.2 * width**2 + 1e-8


def test_lines_are_differentiable_in_the_ends() -> None:
    """What holds for slopes that are kept: lines move with the end that they touch."""
    lower, upper = (torch.tensor([end], dtype=torch.float64, requires_grad=True) for end in (-1.0, 1.5))
    lines = softplus().lines(lower, upper)
    (slope,) = torch.autograd.grad(lines.upper_intercept, upper, allow_unused=True, retain_graph=True)
    assert slope is not None
    assert (
        math.isclose(float(slope), float((torch.sigmoid(upper) - lines.upper_slope).detach()), abs_tol=1e-9)
        or float(slope) == 0
    )
    point = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    total = torch.stack([line.sum() for line in gelu().lines(point, point)]).sum()
    assert bool(torch.isfinite(torch.autograd.grad(total, point)[0]).all())


def _with(record: Activation, change: Callable[[Lines], Lines]) -> Activation:
    return replace(record, lines=lambda lower, upper: change(record.lines(lower, upper)))


@pytest.mark.parametrize("name", ["gelu", "mish", "hardswish", "softplus 3", "selu"])
@pytest.mark.parametrize("field", Lines._fields)
def test_a_flipped_sign_is_refused(name: str, field: str) -> None:
    wrong = _with(SMOOTH[name], lambda lines: lines._replace(**{field: -getattr(lines, field)}))
    with pytest.raises(LingraftError, match=f"its {field.partition('_')[0]} line"):
        require_sound(wrong)


@pytest.mark.parametrize("name", SMOOTH)
def test_lines_on_the_wrong_side_are_refused(name: str) -> None:
    for change in (
        lambda lines: Lines(*lines[2:], *lines[:2]),
        lambda lines: lines._replace(upper_intercept=lines.upper_intercept - 1e-6),
        lambda lines: lines._replace(lower_intercept=lines.lower_intercept + 1e-6),
    ):
        with pytest.raises(LingraftError, match=r"its (lower|upper) line"):
            require_sound(_with(SMOOTH[name], change))


@pytest.mark.parametrize("name", SMOOTH)
def test_a_curve_of_another_form_is_refused(name: str) -> None:
    """Convex taken for concave: the bisection finds the wrong ends, or is not even tried."""
    curve = curve_of(SMOOTH[name])
    turned = replace(curve, forms=tuple(-form for form in curve.forms))
    with pytest.raises(LingraftError, match=r"its (lower|upper) line"):
        require_sound(replace(SMOOTH[name], lines=turned.lines))


@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "elu 2.5", "sigmoid"])
def test_breaks_in_the_wrong_place_are_refused(name: str) -> None:
    curve = curve_of(SMOOTH[name])
    moved = replace(curve, breaks=tuple(place + 1.5 for place in curve.breaks))
    with pytest.raises(LingraftError, match=r"its (lower|upper) line"):
        require_sound(replace(SMOOTH[name], lines=moved.lines))


@pytest.mark.parametrize("name", ["gelu", "gelu tanh", "silu", "mish", "hardswish"])
def test_what_falls_needs_its_rule(name: str) -> None:
    with pytest.raises(LingraftError, match="as if it never fell"):
        require_sound(replace(SMOOTH[name], interval=None))


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_and_forms_are_what_they_are_said_to_be(name: str) -> None:
    """Against autograd, and by the sign of its second derivative between the breaks."""
    curve = curve_of(SMOOTH[name])
    z = torch.linspace(-12, 12, 4801, dtype=torch.float64)[1:-1].add(1e-4).requires_grad_()
    (slope,) = torch.autograd.grad(curve.f(z).sum(), z)
    torch.testing.assert_close(curve.derivative(z.detach()), slope, rtol=0, atol=1e-7)
    given = curve.derivative(z.detach())
    ends = (-math.inf, *curve.breaks, math.inf)
    for form, left, right in zip(curve.forms, ends, ends[1:], strict=False):
        inside = (z.detach() > left) & (z.detach() < right)
        change = given[inside].diff()
        if form:
            assert bool((form * change >= -1e-12).all())
        else:
            assert bool((change.abs() <= 1e-12).all())


def test_a_curve_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(LingraftError, match="before, between and after"):
        Curve(torch.tanh, torch.cosh, (0.0,), (1,), 20.0)
    with pytest.raises(LingraftError, match="within its reach"):
        Curve(torch.tanh, torch.cosh, (30.0,), (1, -1), 20.0)


def test_root() -> None:
    assert math.isclose(root(lambda z: z * z - 2, 0.0, 5.0), math.sqrt(2), abs_tol=1e-15)
