"""Operations over the sides of maps or over dimensions: pooling, means, sums, resizing."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.model.operations.record import Operation

#: How F.interpolate may compute: with weights that are never negative.
_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "area")
#: The largest matrix that is made of one.
_MAX_NUMBERS = 1 << 26


def _largest(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Max pooling over one or two dimensions, by the shape of the input."""
    if return_indices:
        raise LingraftError("max pooling that gives indices as well is not supported. Leave out return_indices.")
    pool: Any = F.max_pool1d if input.dim() == 3 else F.max_pool2d
    return pool(input, kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)


def _average(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average pooling over one or two dimensions, by the shape of the input."""
    if divisor_override is not None and divisor_override < 0:
        raise LingraftError("average pooling with a divisor below 0 is not supported.")
    if input.dim() == 3:
        return F.avg_pool1d(input, kernel_size, stride, padding, ceil_mode, count_include_pad)
    return F.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _adapt(input: Tensor, output_size: Any) -> Tensor:
    pool: Any = F.adaptive_avg_pool1d if input.dim() == 3 else F.adaptive_avg_pool2d
    return pool(input, output_size)


def _interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    if mode not in _MODES or antialias:
        raise LingraftError(f"resizing of mode {mode!r} is not supported. Use one of {', '.join(_MODES)}.")
    return F.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor)


def _mean(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return torch.mean(input, dim, keepdim)


def _sum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return torch.sum(input, dim, keepdim)


def _pools(
    sides: int, calls: tuple[tuple[Any, ...], ...], layers: tuple[type[nn.Module], ...]
) -> tuple[Operation, ...]:
    """Pooling over one side or two: largest, average, average to a given size."""
    largest, average, adaptive = layers
    rank = sides + 2
    return (
        Operation(
            f"max pooling {sides}d", "chooses", _largest, calls=calls[0], layers={largest: None}, onnx=("MaxPool",),
            rank=rank,
        ),
        Operation(
            f"average pooling {sides}d", "averages", _average, calls=calls[1], layers={average: None},
            onnx=("AveragePool",), rarely=("Reshape", "MatMul"), rank=rank,
        ),
        Operation(
            f"adaptive average pooling {sides}d", "averages", _adapt, calls=calls[2], layers={adaptive: None},
            onnx=("GlobalAveragePool", "AveragePool"), rarely=("Reshape", "MatMul"), rank=rank,
        ),
    )  # fmt: skip


POOLING = (
    *_pools(
        1, ((F.max_pool1d, torch.max_pool1d), (F.avg_pool1d,), (F.adaptive_avg_pool1d,)),
        (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d),
    ),
    *_pools(
        2, ((F.max_pool2d, torch.max_pool2d), (F.avg_pool2d,), (F.adaptive_avg_pool2d,)),
        (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
    ),
    Operation(
        "resizing", "averages", _interpolate, calls=(F.interpolate,),
        layers={nn.Upsample: None, nn.UpsamplingNearest2d: None, nn.UpsamplingBilinear2d: None},
        onnx=("Resize",), rarely=("Reshape", "MatMul"),
    ),
    Operation(
        "mean", "averages", _mean, calls=(torch.mean, "mean"), onnx=("GlobalAveragePool", "ReduceMean"),
    ),
    Operation("sum", "averages", _sum, calls=(torch.sum, "sum"), onnx=("ReduceSum",)),
)  # fmt: skip


def side_matrix(name: str, sides: tuple[int, ...], results: int, **settings: Any) -> Tensor:
    """The matrix (results, values), float64, of one of these operations on a channel with these sides.

    They are linear and treat each channel by itself: what they make of unit vectors, one a channel, are the columns.
    """
    compute = next(record.compute for record in POOLING if record.name == name)
    values = math.prod(sides)
    if results * values > _MAX_NUMBERS:
        raise LingraftError(
            f"{name} from {'×'.join(map(str, sides))} to {results} values needs a matrix that is too large. Use sizes"
            " that divide evenly."
        )
    units = torch.eye(values, dtype=torch.float64).view(values, 1, *sides)
    matrix: Tensor = compute(units, **settings).reshape(values, results)
    return matrix.t().contiguous()


def reduced(dim: Any, rank: int) -> list[int]:
    """The dimensions that a mean or sum of a value with `rank` of them is over, in order."""
    given = range(rank) if dim is None or dim == () or dim == [] else [dim] if isinstance(dim, int) else dim
    return sorted(d % rank for d in given)
