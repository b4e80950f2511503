"""Functions of each value by itself, powers and softmax."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from lingraft.errors import LingraftError
from lingraft.model.activations import Activation
from lingraft.model.activations.convex import RECIPROCAL, ROOT
from lingraft.model.activations.cube import CUBE
from lingraft.model.activations.exponential import softplus
from lingraft.model.activations.sigmoid import SIGMOID
from lingraft.model.activations.square import SQUARE
from lingraft.model.operations import KNOWN
from lingraft.model.operations.functions import axis_of_softmax
from lingraft.solver.lowering.building import HANDLERS, Building, handles, inner

#: Highest power that is written as products.
HIGHEST = 16

#: With a threshold beyond which nothing is left out that float64 would hold.
_SOFTPLUS = softplus(1.0, 40.0)


def _bending(function: Activation) -> Callable[[Building, fx.Node, fx.Node], int]:
    """The handler of an operation that this function is."""
    return lambda at, call, x: at.bend(call.name, at.position[x], function)


HANDLERS.update({record.name: _bending(record.bend) for record in KNOWN.values() if record.bend is not None})


@handles("power")
def _power(at: Building, call: fx.Node, x: Any, exponent: Any) -> int:
    """Squares, cubes, products, the root and the reciprocal of these."""
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
    """A product only where neither 2 nor 3 divides the exponent: its bounds need not have the sign of the power."""
    if exponent == 1:
        return source
    for factor, function in ((2, SQUARE), (3, CUBE)):
        if exponent % factor == 0:
            root = _whole_power(at, name, source, exponent // factor)
            return at.bend(f"{name}.{function.name}", root, function)
    return at.product(name, source, _whole_power(at, name, source, exponent - 1))


@handles("softmax")
def _softmax(at: Building, call: fx.Node, x: fx.Node, dim: Any, _: int, dtype: Any) -> int:
    """The sigmoid of −log Σ exp(x_j − x_i) over all j but i, where log(exp a + exp b) = b + softplus(a − b).

    So no number is larger than the differences of the values, however wide their bounds are.
    """
    if dtype is not None:
        raise LingraftError(f"{at.title(call)} changes the precision. Leave out dtype.")
    shape = at.shape(x)
    axis = axis_of_softmax(dim, len(shape) + 1) - 1
    if axis < 0:
        raise LingraftError(f"{at.title(call)} is over the images of a batch. Give another dimension.")
    count, source = shape[axis], at.position[x]
    if count == 1:
        weight = torch.zeros(inner(shape)).double()
        return at.scale(call.name, source, weight, weight + 1)
    numbers = at.numbered(source, shape).movedim(axis, -1)
    theirs = numbers[..., torch.tensor([[j for j in range(count) if j != i] for i in range(count)])]
    own = numbers.unsqueeze(-1).expand_as(theirs)
    apart = [at.gather(call.name, source, places) for places in (theirs, own)]
    players = at.sum(f"{call.name}.apart", apart, [1.0, -1.0])
    shape = theirs.shape
    while shape[-1] > 1:
        players, shape = _soft_round(at, call.name, players, shape)
    total = at.gather(call.name, players, at.numbered(players, shape).squeeze(-1).movedim(-1, axis))
    ones = torch.ones(at.nodes[total].shape).double()
    return at.bend(f"{call.name}.share", at.scale(call.name, total, -ones, 0 * ones), SIGMOID)


def _soft_round(at: Building, name: str, players: int, shape: torch.Size) -> tuple[int, torch.Size]:
    """log(exp a + exp b) of pairs along the last dimension; an odd one is left as it is."""
    numbers, half = at.numbered(players, shape), shape[-1] // 2
    first, second, odd = numbers.split([half, half, shape[-1] - 2 * half], -1)
    a, b = (at.gather(name, players, part) for part in (first, second))
    softer = at.bend(f"{name}.soft", at.sum(f"{name}.pairs", [a, b], [1.0, -1.0]), _SOFTPLUS)
    won = at.sum(f"{name}.won", [b, softer], [1.0, 1.0])
    if not odd.shape[-1]:
        return won, first.shape
    # side by side: each among zeros
    wide = F.pad(at.numbered(won, first.shape), (0, 1)), F.pad(odd, (half, 0))
    sides = [at.gather(name, of, places) for of, places in zip((won, players), wide, strict=True)]
    return at.sum(f"{name}.left", sides, [1.0, 1.0]), wide[0].shape
