"""Sums, differences, products and quotients."""

import operator
from typing import Any

import torch

from lingraft.model.operations.record import Operation


def _add(input: Any, other: Any, alpha: float = 1) -> Any:
    return torch.add(input, other, alpha=alpha) if alpha != 1 else input + other


def _sub(input: Any, other: Any, alpha: float = 1) -> Any:
    return torch.sub(input, other, alpha=alpha) if alpha != 1 else input - other


ARITHMETIC = (
    Operation(
        "sum of two", "adds", _add, calls=(operator.add, operator.iadd, torch.add, "add", "add_"), onnx=("Add",),
        rarely=("Mul",),
    ),
    Operation(
        "difference", "adds", _sub,
        calls=(operator.sub, operator.isub, torch.sub, torch.subtract, "sub", "sub_", "subtract"), onnx=("Sub",),
        rarely=("Mul",),
    ),
    Operation(
        "product", "multiplies", lambda input, other: input * other,
        calls=(operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_", "multiply"), onnx=("Mul",),
        note="of two values without a certificate, and no CROWN-IBP",
    ),
    Operation(
        "quotient", "multiplies", lambda input, other: input / other,
        calls=(operator.truediv, operator.itruediv, torch.div, torch.divide, torch.true_divide, "div", "div_", "divide",
               "true_divide"),
        onnx=("Div",), note="by a value that may not be 0, without a certificate, and no CROWN-IBP",
    ),
    Operation(
        "negation", "multiplies", lambda input: -input,
        calls=(operator.neg, torch.neg, torch.negative, "neg", "neg_", "negative"), onnx=("Mul",),
    ),
)  # fmt: skip
