"""Functions of each value by itself, powers and softmax."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from lingraft.errors import LingraftError
from lingraft.model.activations import Activation
from lingraft.model.activations.convex import CAPPED_EXPONENTIAL, RECIPROCAL, ROOT
from lingraft.model.activations.square import SQUARE
from lingraft.model.operations import KNOWN
from lingraft.model.operations.functions import axis_of_softmax
from lingraft.solver.lowering.building import HANDLERS, Building, handles, inner

#: Highest power that is written as products.
HIGHEST = 16


def _bending(function: Activation) -> Callable[[Building, fx.Node, fx.Node], int]:
    """The handler of an operation that this function is."""
    return lambda at, call, x: at.bend(call.name, at.position[x], function)


HANDLERS.update({record.name: _bending(record.bend) for record in KNOWN.values() if record.bend is not None})


@handles("power")
def _power(at: Building, call: fx.Node, x: Any, exponent: Any) -> int:
    """Squares, products, the root and the reciprocal of these."""
    number = exponent.item() if isinstance(exponent, torch.Tensor) and exponent.numel() == 1 else exponent
    if not at.depends(x) or not isinstance(number, int | float):
        raise LingraftError(f"{at.title(call)} has an exponent that is no fixed number. Use a whole number.")
    size = abs(number)
    if size == 0.5:
        result = at.bend(f"{call.name}.root", at.position[x], ROOT)
    elif size == int(size) and 1 <= size <= HIGHEST:
        result = _whole_power(at, call.name, at.position[x], int(size))
    else:
        raise LingraftError(
            f"{at.title(call)} with the exponent {number} is not supported. Use a whole number up to {HIGHEST}, or ½."
        )
    return result if number > 0 else at.bend(f"{call.name}.reciprocal", result, RECIPROCAL)


def _whole_power(at: Building, name: str, source: int, exponent: int) -> int:
    if exponent == 1:
        return source
    if exponent % 2:
        return at.product(name, source, _whole_power(at, name, source, exponent - 1))
    return at.bend(f"{name}.square", _whole_power(at, name, source, exponent // 2), SQUARE)


@handles("softmax")
def _softmax(at: Building, call: fx.Node, x: fx.Node, dim: Any, _: int, dtype: Any) -> int:
    """1 / (1 + Σ exp(x_j − x_i)) over all j but i: the sum is at least 1, so that there is always a reciprocal.

    Exponentials are capped, which changes the result by less than 1e-34.
    """
    if dtype is not None:
        raise LingraftError(f"{at.title(call)} changes the precision. Leave out dtype.")
    shape = at.shape(x)
    axis = axis_of_softmax(dim, len(shape) + 1) - 1
    if axis < 0:
        raise LingraftError(f"{at.title(call)} is over the images of a batch. Give another dimension.")
    count = shape[axis]
    if count == 1:
        weight = torch.zeros(inner(shape)).double()
        return at.scale(call.name, at.position[x], weight, weight + 1)
    source = at.position[x]
    numbers = at.numbered(source, shape).movedim(axis, -1)
    others = torch.tensor([[j for j in range(count) if j != i] for i in range(count)])
    theirs = numbers[..., others]
    own = numbers.unsqueeze(-1).expand_as(theirs)
    apart = [at.gather(call.name, source, places) for places in (theirs, own)]
    powers = at.bend(f"{call.name}.exp", at.sum(f"{call.name}.apart", apart, [1.0, -1.0]), CAPPED_EXPONENTIAL)
    last = theirs.dim() - 1
    total = at.mix(
        call.name, powers, [last], torch.ones(1, count - 1), torch.ones(1),
        lambda result: result.squeeze(-1).movedim(-1, axis),
    )  # fmt: skip
    return at.bend(f"{call.name}.share", total, RECIPROCAL)
