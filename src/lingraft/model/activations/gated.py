"""z times something that rises from 0 to 1: GELU, SiLU, Mish, Hardswish.

All are concave, then convex, then concave (Hardswish: a line, a parabola, a line), and fall up to one point, from which
on they rise: f' falls from 0, rises from the first inflection to the second, where it is above 1, and falls to 1, so it
has one zero. Where the inflections are, and that there are no others, is shown beside each.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.model.activations.curve import Curve, root
from lingraft.model.activations.record import Activation


def _gated(name: str, curve: Curve, start: float, **names: Any) -> Activation:
    """The record of such a function, whose tangent at 0 is start·z."""
    lowest = root(lambda z: float(curve.derivative(torch.tensor(z, dtype=torch.float64))), *curve.breaks)

    def interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        return curve.between(lower, upper, lowest)

    return Activation(
        name=name,
        value=curve.f,
        lines=curve.lines,
        lines_at=curve.lines,
        gap=curve.gap,
        size=lambda size: size,  # what z is multiplied by lies between 0 and 1
        start=(start, 0.0),
        interval=interval,
        **names,
    )


def _symmetric(f: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor], at: float, reach: float) -> Curve:
    """Convex between the inflections ±at, concave outside."""
    return Curve(f, derivative, (-at, at), (-1, 1, -1), reach)


def _gelu_derivative(z: Tensor) -> Tensor:
    """Φ(z) + z·φ(z)."""
    density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return torch.special.ndtr(z) + z * density


#: f″ is φ(z)·(2 − z²): inflections at ±√2. Beyond ±10, |z|·Φ(−|z|) < 1e-22.
_GELU = _symmetric(F.gelu, _gelu_derivative, math.sqrt(2), 10.0)

#: √(2/π) and the factor of z³ of the tanh approximation, z·sigmoid(2u) with u = c·(z + k·z³)
_C, _K = math.sqrt(2 / math.pi), 0.044715


def _tanh_gelu(z: Tensor) -> Tensor:
    return F.gelu(z, approximate="tanh")


def _tanh_gelu_derivative(z: Tensor) -> Tensor:
    near = z.clamp(-40, 40)  # beyond, the sigmoid is 0 or 1, and powers of z would overflow
    sigmoid = torch.sigmoid(2 * _C * (near + _K * near**3))
    return sigmoid + near * sigmoid * (1 - sigmoid) * 2 * _C * (1 + 3 * _K * near**2)


def _tanh_gelu_bends(z: float) -> float:
    """−f″ has the sign of c·z·tanh(u) − (1 + 2y)/(1 + y)² with y = 3k·z².

    For z > 0 the first term rises and the second, 1 − (y/(1 + y))², falls: one zero. It is an even function.
    """
    y = 3 * _K * z * z
    return _C * z * math.tanh(_C * (z + _K * z**3)) - (1 + 2 * y) / (1 + y) ** 2


_TANH_GELU = _symmetric(_tanh_gelu, _tanh_gelu_derivative, root(_tanh_gelu_bends, 0.0, 10.0), 10.0)


def gelu(approximate: str = "none") -> Activation:
    """z·Φ(z), or its approximation by tanh."""
    return _gelu(approximate)


@cache
def _gelu(approximate: str) -> Activation:
    """One object for each, so that records can be compared by `is`."""
    if approximate not in ("none", "tanh"):
        raise LingraftError(f"GELU with approximate={approximate!r} does not exist. Use 'none' or 'tanh'.")
    return _gated(
        "gelu",
        _GELU if approximate == "none" else _TANH_GELU,
        0.5,
        modules=(nn.GELU,),
        calls=(F.gelu,),
        arguments={"approximate": approximate},
        family=gelu,
        onnx="Gelu",
        attributes={"approximate": "approximate"},
    )


def _silu_derivative(z: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(z)
    return sigmoid * (1 + z * (1 - sigmoid))


#: f″ is sigmoid′(z)·(2 − z·tanh(z/2)), and z·tanh(z/2) is even and rises for z > 0.
_SILU = _symmetric(F.silu, _silu_derivative, root(lambda z: z * math.tanh(z / 2) - 2, 0.0, 10.0), 44.0)


def _mish_derivative(z: Tensor) -> Tensor:
    """t + z·t′ with t = tanh(softplus(z)), t′ = (1 − t²)·sigmoid(z)."""
    t = torch.tanh(F.softplus(z))
    return t + z * (1 - t * t) * torch.sigmoid(z)


def _mish_bends(z: float) -> float:
    """−f″ has the sign of z·r(w) − 2 with w = exp z, r = (2w³ + 3w² − 2w − 2) / ((w + 1)(w² + 2w + 2)).

    r rises: the numerator of its derivative in w is 3w⁴ + 20w³ + 36w² + 24w + 4. It changes its sign at z = −0.112, so
    z·r(w) is negative between there and 0, and grows with the distance from there on both sides, where it is a product
    of two numbers of the same sign that grow: one zero on each side.
    """
    w = math.exp(z)
    return z * (2 * w**3 + 3 * w**2 - 2 * w - 2) / ((w + 1) * (w * w + 2 * w + 2)) - 2


_MISH_BREAKS = (-root(lambda z: _mish_bends(-z), 0.0, 10.0), root(_mish_bends, 0.0, 10.0))
_MISH = Curve(F.mish, _mish_derivative, _MISH_BREAKS, (-1, 1, -1), 44.0)


def _hardswish_derivative(z: Tensor) -> Tensor:
    return torch.where(z < -3, 0.0, torch.where(z >= 3, 1.0, z / 3 + 0.5))


#: z·(z + 3)/6 between −3 and 3, where it bends downwards at both ends
_HARDSWISH = Curve(F.hardswish, _hardswish_derivative, (-3.0, 3.0), (0, 1, 0), 4.0)

GELU = gelu()
SILU = _gated("silu", _SILU, 0.5, modules=(nn.SiLU,), calls=(F.silu,))
MISH = _gated("mish", _MISH, 0.6, modules=(nn.Mish,), calls=(F.mish,), onnx="Mish")
HARDSWISH = _gated("hardswish", _HARDSWISH, 0.5, modules=(nn.Hardswish,), calls=(F.hardswish,), onnx="HardSwish")
