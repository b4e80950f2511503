"""Sums, differences, products and quotients."""

from typing import Any

import torch
from torch import Tensor, fx

from lingraft.errors import LingraftError
from lingraft.model.activations.square import SQUARE
from lingraft.solver.lowering.building import Building, handles, inner
from lingraft.solver.nodes import Shape, Site


def _constant(at: Building, value: Any, shape: Shape) -> Tensor:
    value = value if isinstance(value, Tensor) else torch.tensor(at.number(value), dtype=torch.float64)
    return at.inner_constant(value, shape)


def _combine(at: Building, call: fx.Node, a: Any, b: Any, alpha: Any, sign: float) -> int:
    """a + sign·alpha·b, where one of them may be a constant."""
    if not isinstance(alpha, int | float):
        raise LingraftError(f"{at.title(call)} is called with a factor that is no number. Write a + alpha * b.")
    sign *= at.number(alpha)
    shape = at.shape(call)
    if at.depends(a) and at.depends(b):
        return at.sum(call.name, [at.broadcast(call, x, shape) for x in (a, b)], [1.0, sign])
    variable, constant = (a, b) if at.depends(a) else (b, a)
    weight = torch.full(inner(shape), 1.0 if variable is a else sign, dtype=torch.float64)
    shift = _constant(at, constant, shape) * (sign if variable is a else 1.0)
    return at.scale(call.name, at.broadcast(call, variable, shape), weight, shift)


@handles("sum of two")
def _add(at: Building, call: fx.Node, a: Any, b: Any, alpha: Any) -> int:
    return _combine(at, call, a, b, alpha, 1.0)


@handles("difference")
def _sub(at: Building, call: fx.Node, a: Any, b: Any, alpha: Any) -> int:
    return _combine(at, call, a, b, alpha, -1.0)


def _scaled(at: Building, call: fx.Node, x: fx.Node, weight: Tensor) -> int:
    return at.scale(call.name, at.broadcast(call, x, at.shape(call)), weight, torch.zeros_like(weight))


@handles("product")
def _multiply(at: Building, call: fx.Node, a: Any, b: Any) -> int:
    """By a constant a scale; of two values ((a + b)² − (a − b)²) / 4, so that only squares have to be bounded."""
    shape = at.shape(call)
    if not (at.depends(a) and at.depends(b)):
        variable, constant = (a, b) if at.depends(a) else (b, a)
        return _scaled(at, call, variable, _constant(at, constant, shape))
    both = [at.broadcast(call, x, shape) for x in (a, b)]
    none = torch.zeros(inner(shape)).double()
    squares = []
    for name, sign in (("plus", 1.0), ("minus", -1.0)):
        z = at.sum(f"{call.name}.{name}", both, [1.0, sign])
        site = Site(f"{call.name}.{name}.square", inner(shape), [z], SQUARE.name, none.bool(), none, none, public=False)
        squares.append(at.add(site))
    return at.sum(call.name, squares, [0.25, -0.25])


@handles("quotient")
def _divide(at: Building, call: fx.Node, a: Any, b: Any) -> int:
    if at.depends(b):
        raise LingraftError(f"{at.title(call)} divides by a value, which is not supported. Divide by constants.")
    return _scaled(at, call, a, _constant(at, b, at.shape(call)).reciprocal())


@handles("negation")
def _negate(at: Building, call: fx.Node, x: fx.Node) -> int:
    return _scaled(at, call, x, -torch.ones(inner(at.shape(call))).double())
