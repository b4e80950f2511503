"""Softsign, an activation that lingraft does not know by itself: its record, as somebody outside would write it.

z/(1 + |z|) is convex below 0 and concave above. It is slow to become flat: 1e8 away from 0 it differs from ±1 by 1e-8.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model.activations import Activation, Lines
from lingraft.model.activations.curve import Curve


def derivative(z: Tensor) -> Tensor:
    return (1 + z.abs()) ** -2


CURVE = Curve(F.softsign, derivative, breaks=(0.0,), forms=(1, -1), reach=1e8, rest=1e-8)


def lines(lower: Tensor, upper: Tensor) -> Lines:
    return CURVE.lines(lower, upper)


SOFTSIGN = Activation(
    name="softsign",
    value=F.softsign,
    lines=lines,
    gap=CURVE.gap,
    size=lambda size: 1.0,
    start=(1.0, 0.0),  # the tangent at 0
    modules=(nn.Softsign,),
    calls=(F.softsign,),
    onnx="Softsign",
)
