"""Records that hold pass the check, and those with one thing wrong are refused with what it is."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from softsign import SOFTSIGN
from torch import Tensor, nn

from lingraft import LingraftError
from lingraft.model.activations import KNOWN, Activation, Lines
from lingraft.model.activations.clipped import ABS, HARDSIGMOID, RELU6, clamp, clamp_max, clamp_min, hardtanh
from lingraft.model.activations.exponential import SELU, celu, elu, softplus
from lingraft.model.activations.gated import HARDSWISH, MISH, SILU, gelu
from lingraft.model.activations.relu import RELU, leaky_relu, prelu
from lingraft.model.activations.sigmoid import SIGMOID, TANH
from lingraft.model.activations.soundness import require_sound

SLOPES = [leaky_relu(), leaky_relu(0.3), leaky_relu(-0.5), leaky_relu(1.7), *map(prelu, map(torch.tensor, (0.2, -1.3)))]
CLIPS = [RELU6, hardtanh(), hardtanh(1.0, 4.0), HARDSIGMOID, clamp(-0.3, 2.0), clamp_min(0.1), clamp_max(3.0), ABS]
SMOOTH = [
    SIGMOID,
    TANH,
    gelu(),
    gelu("tanh"),
    SILU,
    MISH,
    HARDSWISH,
    SELU,
    elu(),
    elu(0.3),
    elu(2.5),
    celu(),
    celu(3.0),
]
SOFTPLUS = softplus()
BUILT_IN = (RELU, *SLOPES, *CLIPS, *SMOOTH, SOFTPLUS, softplus(3.0), softplus(0.2))


@pytest.mark.parametrize("record", [*BUILT_IN, SOFTSIGN], ids=lambda record: f"{record.name} {record.arguments}")
def test_records_hold(record: Activation) -> None:
    require_sound(record)


def test_every_known_record_is_among_them() -> None:
    assert {record.name for record in BUILT_IN} == set(KNOWN)


def _lines(record: Activation, change: Callable[[Lines], Lines]) -> Activation:
    return replace(record, lines=lambda lower, upper: change(record.lines(lower, upper)))


@pytest.mark.parametrize("record", [RELU, SIGMOID, TANH, SOFTPLUS], ids=lambda record: record.name)
@pytest.mark.parametrize("name", Lines._fields)
def test_a_flipped_sign_in_a_line_is_refused(record: Activation, name: str) -> None:
    wrong = _lines(record, lambda lines: lines._replace(**{name: -getattr(lines, name)}))
    if record is RELU and name == "lower_intercept":
        return require_sound(wrong)  # it is 0
    side = name.partition("_")[0]
    with pytest.raises(LingraftError, match=rf"{record.name}.*its {side} line .* at x = .* on \[l, u\] = \["):
        require_sound(wrong)
    return None


def _no_gap(lower: Tensor, upper: Tensor) -> Tensor:
    return torch.zeros_like(lower)


def _tangent(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    return SOFTPLUS.lines(lower, upper)[:2]


WRONG: dict[str, tuple[Activation, str]] = {
    "lines a little too close": (
        _lines(SIGMOID, lambda lines: lines._replace(upper_intercept=lines.upper_intercept - 1e-6)),
        r"its upper line lies below it by .* at x = ",
    ),
    "lines that are no numbers": (
        _lines(TANH, lambda lines: lines._replace(lower_slope=lines.lower_slope / 0.0 * 0.0)),
        "its lower line",
    ),
    "lines of another interval": (
        replace(TANH, lines=lambda lower, upper: TANH.lines(lower / 2, upper / 2)),
        "line lies",
    ),
    "a choice of lines of another function": (replace(TANH, lines_at=SIGMOID.lines_at), "line lies"),
    "a tangent in place of a chord": (
        replace(SOFTPLUS, lines=lambda lower, upper: Lines(*SOFTPLUS.lines(lower, upper)[:2], *_tangent(lower, upper))),
        "its upper line lies below it",
    ),
    "a falling function that is taken for a rising one": (
        replace(
            SIGMOID,
            name="silu",
            value=F.silu,
            lines=lambda lower, upper: _constant(F.silu, lower, upper),
            lines_at=None,
        ),
        r"its bounds, taken at the ends as if it never fell, gives a lower bound above it .* at x = -",
    ),
    "softplus without the step at 20": (replace(SOFTPLUS, interval=None), "as if it never fell"),
    "an interval rule upside down": (
        replace(SOFTPLUS, interval=lambda lower, upper: SOFTPLUS.between(lower, upper)[::-1]),
        "its interval rule gives a lower bound above it",
    ),
    "a leaky ReLU that falls, by the rule of one that does not": (
        replace(leaky_relu(-0.5), interval=None),
        "as if it never fell",
    ),
    "a size of 1 for what grows": (replace(SOFTPLUS, size=lambda size: 1.0), r"its size is 1 for \|x\| ≤"),
    "a size that forgets the value at 0": (replace(SOFTPLUS, size=lambda size: size), "its size is"),
    "no gap": (replace(SIGMOID, gap=_no_gap), "its gap is smaller"),
    "twice the gap": (replace(SIGMOID, gap=lambda lower, upper: 2 * SIGMOID.gap(lower, upper)), "its gap is larger"),
    "a gap below 0": (replace(TANH, gap=lambda lower, upper: -TANH.gap(lower, upper)), "its gap is"),
    "pieces of another function": (replace(RELU, pieces=leaky_relu(0.1).pieces), "what its pieces say gives"),
    "a smooth function as two lines": (replace(TANH, pieces=RELU.pieces), "what its pieces say gives"),
    "a ceiling too low": (replace(RELU6, pieces=hardtanh(0.0, 5.0).pieces), "what its pieces say gives"),
    "a layer that computes something else": (replace(TANH, modules=(nn.Tanhshrink,)), "Tanhshrink gives"),
    "a function that computes something else": (replace(TANH, calls=(torch.sigmoid,)), "sigmoid gives"),
    "a method that computes something else": (replace(RELU, calls=("abs",)), "abs gives"),
    "a function that changes its argument": (replace(TANH, calls=(lambda z: z.tanh_(),)), "changes its argument"),
    "other arguments": (replace(SOFTPLUS, arguments={"beta": 2.0, "threshold": 20.0}), "Softplus gives"),
    "values that are no numbers": (replace(SIGMOID, value=torch.log), "not finite"),
    "values of another type": (replace(SIGMOID, value=lambda z: torch.sigmoid(z).float()), "float64"),
    "a start that is no line": (replace(SIGMOID, start=(float("nan"), 0.0)), "cannot start"),
    "ONNX without a layer": (replace(SIGMOID, modules=()), "as a layer"),
}


def _constant(function: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor) -> Lines:
    """Lines far from the function: sound, if of no use."""
    size, zero = 1 + 2 * torch.maximum(lower.abs(), upper.abs()), torch.zeros_like(lower)
    return Lines(zero, -size, zero, size)


@pytest.mark.parametrize("what", WRONG)
def test_a_record_with_one_thing_wrong_is_refused(what: str) -> None:
    record, message = WRONG[what]
    with pytest.raises(LingraftError, match=message):
        require_sound(record)


def test_a_function_that_falls_is_refused_with_the_rule_of_one_that_rises() -> None:
    """SiLU has its least value at −1.2785."""
    require_sound(SILU)
    with pytest.raises(LingraftError, match="interval rule gives a lower bound above it"):
        require_sound(replace(SILU, interval=lambda lower, upper: (F.silu(lower), F.silu(upper))))
