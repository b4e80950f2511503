"""Operations that only move values, or leave them where they are."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model.operations.record import Operation


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return F.dropout(input, p, training)


def _pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    return F.pad(input, tuple(pad), mode, value if mode == "constant" else None)


def _split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    return torch.split(tensor, split_size_or_sections, dim)


_PADDING: dict[type[nn.Module], Any] = {
    **dict.fromkeys(
        (nn.ZeroPad1d, nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d),
        lambda layer: {"pad": layer.padding, "value": layer.value},
    ),
    **dict.fromkeys((nn.ReflectionPad1d, nn.ReflectionPad2d), lambda layer: {"pad": layer.padding, "mode": "reflect"}),
    **dict.fromkeys(
        (nn.ReplicationPad1d, nn.ReplicationPad2d), lambda layer: {"pad": layer.padding, "mode": "replicate"}
    ),
    **dict.fromkeys((nn.CircularPad1d, nn.CircularPad2d), lambda layer: {"pad": layer.padding, "mode": "circular"}),
}

MOVES = (
    Operation("identity", "same", lambda input: input, calls=(torch.clone, "clone", "contiguous", "detach", "float"),
              layers={nn.Identity: None}),
    Operation("dropout", "same", _dropout, calls=(F.dropout, F.dropout1d, F.dropout2d),
              layers={nn.Dropout: None, nn.Dropout1d: None, nn.Dropout2d: None}),
    Operation("flatten", "moves", lambda input, start_dim=0, end_dim=-1: torch.flatten(input, start_dim, end_dim),
              calls=(torch.flatten, "flatten"), layers={nn.Flatten: None}, onnx=("Flatten", "Reshape")),
    Operation("unflatten", "moves", lambda input, dim, sizes: torch.unflatten(input, dim, tuple(sizes)),
              calls=(torch.unflatten, "unflatten"),
              layers={nn.Unflatten: lambda layer: {"dim": layer.dim, "sizes": layer.unflattened_size}},
              onnx=("Flatten", "Reshape")),
    Operation("reshape", "moves", lambda input, *shape: input.reshape(*shape),
              calls=(torch.reshape, "reshape", "view"), onnx=("Flatten", "Reshape")),
    Operation("squeeze", "moves", lambda input, *dim: torch.squeeze(input, *dim), calls=(torch.squeeze, "squeeze"),
              onnx=("Flatten", "Reshape")),
    Operation("unsqueeze", "moves", lambda input, dim: torch.unsqueeze(input, dim),
              calls=(torch.unsqueeze, "unsqueeze"), onnx=("Reshape",)),
    Operation("permute", "moves", lambda input, *dims: input.permute(*dims), calls=(torch.permute, "permute"),
              onnx=("Transpose",)),
    Operation("transpose", "moves", lambda input, dim0, dim1: torch.transpose(input, dim0, dim1),
              calls=(torch.transpose, torch.swapaxes, "transpose", "swapaxes"), onnx=("Transpose",)),
    Operation("index", "moves", lambda input, index: input[index], calls=(operator.getitem,),
              onnx=("Slice", "Reshape"), rarely=("Gather", "Flatten")),
    Operation("narrow", "moves", lambda input, dim, start, length: torch.narrow(input, dim, start, length),
              calls=(torch.narrow, "narrow"), onnx=("Slice",)),
    Operation("select", "moves", lambda input, dim, index: torch.select(input, dim, index),
              calls=(torch.select, "select"), onnx=("Slice", "Reshape")),
    Operation("flip", "moves", lambda input, *dims: input.flip(*dims), calls=(torch.flip, "flip"), onnx=("Slice",)),
    Operation("chunk", "moves", lambda input, chunks, dim=0: torch.chunk(input, chunks, dim),
              calls=(torch.chunk, "chunk"), onnx=("Slice",)),
    Operation("split", "moves", _split, calls=(torch.split, "split"), onnx=("Slice",)),
    Operation("unbind", "moves", lambda input, dim=0: torch.unbind(input, dim), calls=(torch.unbind, "unbind"),
              onnx=("Slice", "Reshape")),
    Operation("concatenation", "moves", lambda tensors, dim=0: torch.cat(tensors, dim),
              calls=(torch.cat, torch.concat, torch.concatenate), onnx=("Concat",), rarely=("Pad", "Add")),
    Operation("stack", "moves", lambda tensors, dim=0: torch.stack(tensors, dim), calls=(torch.stack,),
              onnx=("Reshape", "Concat")),
    Operation("padding", "moves", _pad, calls=(F.pad,), layers=_PADDING, onnx=("Pad",), rarely=("Slice", "Concat")),
    Operation("expand", "moves", lambda input, *size: input.expand(*size), calls=("expand",), onnx=("Expand",)),
    Operation("pixel shuffle", "moves", lambda input, upscale_factor: F.pixel_shuffle(input, upscale_factor),
              calls=(F.pixel_shuffle,), layers={nn.PixelShuffle: None}, onnx=("Reshape", "Transpose")),
    Operation("pixel unshuffle", "moves", lambda input, downscale_factor: F.pixel_unshuffle(input, downscale_factor),
              calls=(F.pixel_unshuffle,), layers={nn.PixelUnshuffle: None}, onnx=("Reshape", "Transpose")),
    Operation("channel shuffle", "moves", lambda input, groups: F.channel_shuffle(input, groups),
              calls=(F.channel_shuffle,), layers={nn.ChannelShuffle: None}, onnx=("Reshape", "Transpose")),
)  # fmt: skip
