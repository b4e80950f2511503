"""Shapes of the results of the most frequent layers, by rule.

torch finds any shape by running a layer on meta tensors, but loads its compiler for that, which takes longer than
reading a usual network. What fits no rule is left to it.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from lingraft.model.activations import of_module
from lingraft.model.operations import of_call

Shape = tuple[int, ...]

_PAIRWISE = (torch.add, torch.sub, torch.mul, torch.div)


def layer_shape(layer: nn.Module, shape: Shape) -> Shape | None:
    """Shape of what `layer` makes of an input of that shape, the batch included; None if no rule fits."""
    if of_module(layer) is not None:
        return shape
    if isinstance(layer, nn.Linear) and shape[-1] == layer.in_features:
        return (*shape[:-1], layer.out_features)
    if isinstance(layer, nn.Conv2d) and len(shape) == 4 and shape[1] == layer.in_channels:
        sides = [_side(layer, dimension, length) for dimension, length in enumerate(shape[2:])]
        return (shape[0], layer.out_channels, *sides) if min(sides) > 0 else None
    return None


def call_shape(function: Any, shapes: list[Shape]) -> Shape | None:
    """Shape of what a function of values of these shapes gives; None if no rule fits."""
    if len(shapes) == 1:
        known = of_call(function)
        return None if known is None or known.bend is None else shapes[0]
    if function not in _PAIRWISE or len(shapes) != 2:
        return None
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _side(layer: nn.Conv2d, dimension: int, length: int) -> int:
    assert not isinstance(layer.padding, str)
    reach = layer.dilation[dimension] * (layer.kernel_size[dimension] - 1)
    return (length + 2 * layer.padding[dimension] - reach - 1) // layer.stride[dimension] + 1
