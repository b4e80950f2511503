"""Sigmoid and tanh: convex below 0, concave above it."""

import math

import torch
from torch import Tensor, nn

from lingraft.model.activations.curve import Curve
from lingraft.model.activations.record import Activation

#: Reduction of the bracket in each step of the golden-section search, and the number of steps.
_GOLDEN, _STEPS = (math.sqrt(5) - 1) / 2, 40


def _sigmoid_derivative(z: Tensor) -> Tensor:
    value = torch.sigmoid(z)
    return value * (1 - value)


def _tanh_derivative(z: Tensor) -> Tensor:
    value = torch.tanh(z)
    return 1 - value * value


def _sigmoid_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """The least spread of sigmoid(z) − m·z over slopes m: it is convex in m, so a golden-section search finds it."""
    low, high = torch.zeros_like(lower), torch.full_like(lower, 0.25)
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        smaller = _spread(left, lower, upper) < _spread(right, lower, upper)
        low, high = torch.where(smaller, low, left), torch.where(smaller, right, high)
    return _spread((low + high) / 2, lower, upper)


def _spread(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """max − min of sigmoid(z) − slope·z on [lower, upper], at the ends or where the derivative is the slope."""
    value = (1 + (1 - 4 * slope).clamp(min=0).sqrt()) / 2  # of the sigmoid at the bend
    bend = torch.logit(value)
    points = (lower, upper, bend.clamp(lower, upper), (-bend).clamp(lower, upper))
    rest = torch.stack([torch.sigmoid(z) - slope * z for z in points])
    return rest.amax(0) - rest.amin(0)


def _tanh_gap(lower: Tensor, upper: Tensor) -> Tensor:
    """tanh(z) = 2·sigmoid(2z) − 1."""
    return 2 * _sigmoid_gap(2 * lower, 2 * upper)


_SIGMOID = Curve(torch.sigmoid, _sigmoid_derivative, (0.0,), (1, -1), 40.0)
_TANH = Curve(torch.tanh, _tanh_derivative, (0.0,), (1, -1), 20.0)

SIGMOID = Activation(
    name="sigmoid",
    value=torch.sigmoid,
    lines=_SIGMOID.lines,
    lines_at=_SIGMOID.lines,
    gap=_sigmoid_gap,
    size=lambda size: 1.0,
    start=(0.25, 0.5),  # the tangent at 0
    rise=1.0,
    modules=(nn.Sigmoid,),
    calls=(torch.sigmoid, torch.sigmoid_, torch.special.expit, "sigmoid", "sigmoid_"),
    onnx="Sigmoid",
)
TANH = Activation(
    name="tanh",
    value=torch.tanh,
    lines=_TANH.lines,
    lines_at=_TANH.lines,
    gap=_tanh_gap,
    size=lambda size: 1.0,
    start=(1.0, 0.0),  # the tangent at 0
    rise=2.0,
    modules=(nn.Tanh,),
    calls=(torch.tanh, torch.tanh_, "tanh", "tanh_"),
    onnx="Tanh",
)
