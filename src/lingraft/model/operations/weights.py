"""Operations with weights: convolutions, linear layers, products with constant matrices, batch norm."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model.operations.record import Operation

Sizes = int | tuple[int, ...]


def padding_of(padding: Any, kernel: tuple[int, ...], dilation: Any) -> tuple[list[int], list[int]]:
    """What a convolution adds before and after each side of a map; `padding` as torch takes it, words included."""
    rank = len(kernel)
    if padding == "valid":
        return [0] * rank, [0] * rank
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(each(dilation, rank), kernel, strict=True)]
        return [t // 2 for t in totals], [t - t // 2 for t in totals]
    return list(each(padding, rank)), list(each(padding, rank))


def each(value: Any, rank: int) -> tuple[int, ...]:
    """The numbers, one for each side of a map, that torch lets one write as one."""
    numbers = (value,) if isinstance(value, int) else tuple(int(n) for n in value)
    return numbers * rank if len(numbers) == 1 else numbers


def around(before: list[int], after: list[int]) -> tuple[int, ...]:
    """Padding in the order of F.pad, which counts from the last dimension."""
    return tuple(n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair)


def _convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
) -> Tensor:
    """A convolution over one or two dimensions, by the shape of the weight."""
    convolve: Any = F.conv1d if weight.dim() == 3 else F.conv2d
    if padding_mode != "zeros":
        input = F.pad(input, around(*padding_of(padding, tuple(weight.shape[2:]), dilation)), mode=padding_mode)
        padding = 0
    return convolve(input, weight, bias, stride, padding, dilation, groups)


def _convolve_back(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """A transposed convolution over one or two dimensions, by the shape of the weight."""
    convolve: Any = F.conv_transpose1d if weight.dim() == 3 else F.conv_transpose2d
    return convolve(input, weight, bias, stride, padding, output_padding, groups, dilation)


def _normalize(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum or 0.0, eps)


WEIGHTS = (
    Operation(
        "convolution", "weighs", _convolve, calls=(F.conv1d, F.conv2d), layers={nn.Conv1d: None, nn.Conv2d: None},
        onnx=("Conv",), rarely=("Pad", "Slice", "Concat"),
    ),
    Operation(
        "transposed convolution", "weighs", _convolve_back, calls=(F.conv_transpose1d, F.conv_transpose2d),
        layers={nn.ConvTranspose1d: None, nn.ConvTranspose2d: None}, onnx=("ConvTranspose",),
    ),
    Operation(
        "linear", "weighs", lambda input, weight, bias=None: F.linear(input, weight, bias), calls=(F.linear,),
        layers={nn.Linear: None}, onnx=("Gemm",), rarely=("MatMul", "Add"),
    ),
    Operation(
        "matrix product", "weighs", lambda input, other: torch.matmul(input, other),
        calls=(operator.matmul, torch.matmul, "matmul"), onnx=("MatMul",),
        note="of two values without a certificate, and no CROWN-IBP",
    ),
    Operation(
        "batch norm", "weighs", _normalize, calls=(F.batch_norm,),
        layers={nn.BatchNorm1d: None, nn.BatchNorm2d: None}, onnx=("BatchNormalization",),
    ),
)  # fmt: skip
