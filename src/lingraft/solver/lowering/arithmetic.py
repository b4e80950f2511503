"""Sums, differences, products and quotients."""

from typing import Any

import torch
from torch import Tensor, fx

from lingraft.errors import LingraftError
from lingraft.model.activations.convex import RECIPROCAL
from lingraft.solver.lowering.building import Building, handles, inner
from lingraft.solver.nodes import Shape


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
    """By a constant a scale; of two values a product, which is written with squares."""
    shape = at.shape(call)
    if not (at.depends(a) and at.depends(b)):
        variable, constant = (a, b) if at.depends(a) else (b, a)
        return _scaled(at, call, variable, _constant(at, constant, shape))
    one, other = (at.broadcast(call, x, shape) for x in (a, b))
    return at.product(call.name, one, other)


@handles("quotient")
def _divide(at: Building, call: fx.Node, a: Any, b: Any) -> int:
    """By a constant a scale; by a value, times its reciprocal."""
    shape = at.shape(call)
    if not at.depends(b):
        return _scaled(at, call, a, _constant(at, b, shape).reciprocal())
    inverse = at.bend(f"{call.name}.reciprocal", at.broadcast(call, b, shape), RECIPROCAL)
    if at.depends(a):
        return at.product(call.name, at.broadcast(call, a, shape), inverse)
    factor = _constant(at, a, shape)
    return at.scale(call.name, inverse, factor, torch.zeros_like(factor))


@handles("negation")
def _negate(at: Building, call: fx.Node, x: fx.Node) -> int:
    return _scaled(at, call, x, -torch.ones(inner(at.shape(call))).double())
