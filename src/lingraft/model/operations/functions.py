"""Functions of each value by itself that are no activations, powers, and softmax."""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.model.activations import Activation
from lingraft.model.activations.convex import EXPONENTIAL, RECIPROCAL, ROOT
from lingraft.model.activations.square import SQUARE
from lingraft.model.activations.steps import FLOOR, SIGN
from lingraft.model.activations.waves import COSINE, SINE
from lingraft.model.operations.record import Operation


def _bends(
    name: str, bend: Activation, compute: Callable[[Tensor], Tensor], calls: tuple[Any, ...], onnx: str, note: str = ""
) -> Operation:
    return Operation(name, "bends", lambda input: compute(input), calls=calls, onnx=(onnx,), note=note, bend=bend)


def _softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: None = None) -> Tensor:
    """`_stacklevel` is about a warning only."""
    if dtype is not None:
        raise LingraftError("a softmax in another precision is not supported. Leave out dtype.")
    return F.softmax(input, axis_of_softmax(dim, input.dim()))


def axis_of_softmax(dim: int | None, rank: int) -> int:
    """The dimension of a softmax, from 0; if none is given, torch takes one by the rank of the value."""
    given = (0 if rank in (0, 1, 3) else 1) if dim is None else dim
    return given % rank


FUNCTIONS = (
    _bends("exponential", EXPONENTIAL, torch.exp, (torch.exp, torch.exp_, "exp", "exp_"), "Exp"),
    _bends(
        "reciprocal", RECIPROCAL, torch.reciprocal,
        (torch.reciprocal, torch.reciprocal_, "reciprocal", "reciprocal_"), "Reciprocal", "of values away from 0",
    ),
    _bends(
        "square root", ROOT, torch.sqrt, (torch.sqrt, torch.sqrt_, "sqrt", "sqrt_"), "Sqrt",
        "of values that are not below 0",
    ),
    _bends("sine", SINE, torch.sin, (torch.sin, torch.sin_, "sin", "sin_"), "Sin"),
    _bends("cosine", COSINE, torch.cos, (torch.cos, torch.cos_, "cos", "cos_"), "Cos"),
    _bends("sign", SIGN, torch.sign, (torch.sign, "sign", "sign_"), "Sign"),
    _bends("floor", FLOOR, torch.floor, (torch.floor, torch.floor_, "floor", "floor_"), "Floor"),
    _bends("square", SQUARE, torch.square, (torch.square, torch.square_, "square", "square_"), "Mul"),
    Operation(
        "power", "powers", lambda input, exponent: input**exponent, calls=(operator.pow, torch.pow, "pow"),
        onnx=("Pow",), note="whole numbers, ½ and −½",
    ),
    Operation(
        "softmax", "softens", _softmax, calls=(F.softmax, torch.softmax, "softmax"), layers={nn.Softmax: None},
        onnx=("Softmax",),
    ),
)  # fmt: skip
