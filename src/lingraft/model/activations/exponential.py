"""Functions made of exp that never fall: softplus, ELU, CELU, SELU."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.model.activations.curve import Curve
from lingraft.model.activations.record import Activation


def softplus(beta: float = 1.0, threshold: float = 20.0) -> Activation:
    """log(1 + exp(βz))/β, which is convex; where βz is above the threshold, torch gives z itself."""
    return _softplus(float(beta), float(threshold))


@cache
def _softplus(beta: float, threshold: float) -> Activation:
    """One object for each pair of arguments, so that records can be compared by `is`."""
    _require("softplus", beta > 0, f"beta={beta}")
    if not threshold >= 15:
        raise LingraftError(f"softplus with threshold={threshold} has a step there. Use torch's threshold, 20.")
    # beyond the threshold torch leaves out log(1 + exp(−βz))/β, so that it falls a little there
    left_out = 1.01 * math.log1p(math.exp(-threshold)) / beta + 1e-12

    def value(z: Tensor) -> Tensor:
        return F.softplus(z, beta, threshold)

    def derivative(z: Tensor) -> Tensor:
        return torch.sigmoid(beta * z)

    def interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        return value(lower) - left_out, value(upper) + left_out

    # the bound of `Curve` is about the function without the step; with it, values and bounds differ by what is left out
    curve = Curve(value, derivative, (), (1,), 44 / beta, 4 * left_out + 1e-14 / beta)
    return Activation(
        name="softplus",
        value=value,
        lines=curve.lines,
        lines_at=curve.lines,
        gap=curve.gap,
        size=lambda size: size + math.log(2) / beta,
        start=(0.5, math.log(2) / beta),  # the tangent at 0
        interval=interval,
        modules=(nn.Softplus,),
        calls=(F.softplus,),
        arguments={"beta": beta, "threshold": threshold},
        family=softplus,
        onnx="Softplus",
    )


def _of_two_parts(
    name: str, value: Callable[[Tensor], Tensor], left: float, right: float, scale: float, **names: Any
) -> Activation:
    """left·scale·(exp(z/scale) − 1) below 0, right·z above: slopes `left` and `right` meet at 0."""

    def derivative(z: Tensor) -> Tensor:
        return torch.where(z < 0, left * torch.exp(z / scale), right)

    # convex with one bend at 0, upwards if the slope on the right is larger: then it is convex as a whole
    pieces: tuple[tuple[float, ...], tuple[int, ...]] = ((), (1,)) if left <= right else ((0.0,), (1, 0))
    curve = Curve(value, derivative, *pieces, 44 * scale, 1e-14 * left * scale)
    return Activation(
        name=name,
        value=value,
        lines=curve.lines,
        lines_at=curve.lines,
        gap=curve.gap,
        size=lambda size: max(left, right) * size,
        start=(right, 0.0),
        **names,
    )


def elu(alpha: float = 1.0) -> Activation:
    """alpha·(exp z − 1) below 0, z above."""
    return _elu(float(alpha))


@cache
def _elu(alpha: float) -> Activation:
    _require("elu", alpha >= 0, f"alpha={alpha}")
    names = {"arguments": {"alpha": alpha}, "family": elu, "onnx": "Elu", "attributes": {"alpha": "alpha"}}

    def value(z: Tensor) -> Tensor:
        return F.elu(z, alpha)

    return _of_two_parts("elu", value, alpha, 1.0, 1.0, modules=(nn.ELU,), calls=(F.elu, F.elu_), **names)


def celu(alpha: float = 1.0) -> Activation:
    """alpha·(exp(z/alpha) − 1) below 0, z above."""
    return _celu(float(alpha))


@cache
def _celu(alpha: float) -> Activation:
    _require("celu", alpha > 0, f"alpha={alpha}")
    names = {"arguments": {"alpha": alpha}, "family": celu, "onnx": "Celu", "attributes": {"alpha": "alpha"}}
    calls = (F.celu, torch.celu, torch.celu_)

    def value(z: Tensor) -> Tensor:
        return F.celu(z, alpha)

    return _of_two_parts("celu", value, 1.0, 1.0, alpha, modules=(nn.CELU,), calls=calls, **names)


def _require(name: str, holds: bool, given: str) -> None:
    if not holds or "inf" in given or "nan" in given:
        raise LingraftError(f"{name} with {given} is not supported: it must be positive and finite.")


SOFTPLUS, ELU, CELU = softplus(), elu(), celu()

#: alpha and scale of SELU as Klambauer et al. 2017 give them: scale·z, below 0 scale·alpha·(exp z − 1).
SELU_CONSTANTS = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
SELU = _of_two_parts(
    "selu",
    F.selu,
    SELU_CONSTANTS[0] * SELU_CONSTANTS[1],
    SELU_CONSTANTS[1],
    1.0,
    modules=(nn.SELU,),
    calls=(F.selu, torch.selu, torch.selu_),
    onnx="Selu",
)
