"""Shapes of the results of the most frequent layers, by rule.

torch finds any shape by running a layer on meta tensors, but loads its compiler for that, which takes longer than
reading a usual network. What fits no rule is left to it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lingraft.model.activations import of_module
from lingraft.model.operations import of_call

Shape = tuple[int, ...]

#: Functions of one or two values, or of a value and numbers, that are computed number by number.
_BY_VALUE = (
    torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.square, torch.pow, torch.clamp_min, torch.clamp_max,
    torch.exp, torch.reciprocal, torch.sqrt, torch.sin, torch.cos, torch.sign, torch.floor, torch.abs, torch.erf,
    torch.gt,
)  # fmt: skip


def layer_shape(layer: nn.Module, shape: Shape) -> Shape | None:
    """Shape of what `layer` makes of an input of that shape, the batch included; None if no rule fits."""
    if of_module(layer) is not None or isinstance(layer, nn.Softmax | nn.LogSoftmax):
        return shape
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and len(shape) > 1 and shape[1] == layer.num_features:
        return shape
    if isinstance(layer, nn.AdaptiveAvgPool2d) and layer.output_size == 1 and len(shape) == 4:
        return (*shape[:2], 1, 1)
    if isinstance(layer, nn.Linear) and shape[-1] == layer.in_features:
        return (*shape[:-1], layer.out_features)
    if isinstance(layer, nn.Conv2d) and len(shape) == 4 and shape[1] == layer.in_channels:
        sides = [_side(layer, dimension, length) for dimension, length in enumerate(shape[2:])]
        return (shape[0], layer.out_channels, *sides) if min(sides) > 0 else None
    return None


def call_shape(function: Any, args: Sequence[Any]) -> Shape | None:
    """Shape of what a function gives, called with these, values by their shapes (tuples); None if no rule fits."""
    if function is torch.cat:
        return _joined(*args)
    if function in (torch.mean, torch.sum):
        return _reduced(*args)
    known = of_call(function)
    if function not in _BY_VALUE and (known is None or known.bend is None):
        return None
    try:
        return np.broadcast_shapes(*(arg for arg in args if isinstance(arg, tuple)))
    except ValueError:
        return None


def _joined(shapes: Sequence[Shape], dimension: int) -> Shape | None:
    first, *others = shapes
    around = [shape[:dimension] + shape[dimension + 1 :] for shape in shapes]
    if not 0 <= dimension < len(first) or any(other != around[0] for other in around[1:]):
        return None
    side = first[dimension] + sum(shape[dimension] for shape in others)
    return (*first[:dimension], side, *first[dimension + 1 :])


def _reduced(shape: Shape, dimensions: Sequence[int], keep: bool) -> Shape | None:
    if not all(0 <= dimension < len(shape) for dimension in dimensions):
        return None
    sides = ((1 if i in dimensions else side) for i, side in enumerate(shape) if keep or i not in dimensions)
    return tuple(sides)


def _side(layer: nn.Conv2d, dimension: int, length: int) -> int:
    assert not isinstance(layer.padding, str)
    reach = layer.dilation[dimension] * (layer.kernel_size[dimension] - 1)
    return (length + 2 * layer.padding[dimension] - reach - 1) // layer.stride[dimension] + 1
