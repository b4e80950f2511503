"""Masks in a file, as bits."""

import math
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.model.grafted_activation import pack, unpack
from lingraft.runs import load_tensors, save_tensors


def save_mask(path: Path, mask: Mapping[str, Tensor]) -> None:
    """Write a mask, site name → boolean tensor, to a safetensors file: 8 neurons a byte."""
    shapes = {name: list(chosen.shape) for name, chosen in mask.items()}
    save_tensors(path, {name: pack(chosen) for name, chosen in mask.items()}, {"shapes": shapes})


def load_mask(path: Path) -> dict[str, Tensor]:
    """Read what `save_mask` wrote; a missing or damaged file is a LingraftError that names it."""
    if not path.exists():
        raise LingraftError(f"{path} is missing. Make it with `lingraft select RUN`.")
    bits, metadata = load_tensors(path)
    try:
        shapes = metadata["shapes"]
        if any((math.prod(shape) + 7) // 8 != bits[name].numel() for name, shape in shapes.items()):
            raise ValueError("other shapes than bits")
        return {name: unpack(bits[name], shape) for name, shape in shapes.items()}
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise LingraftError(f"{path} is not a mask. Make it with `lingraft select RUN`.") from error
