"""Random crops and flips of a batch, without a loop over its images."""

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


def crop_and_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    """Pad each image with 4 zeros on every side, cut a window of the old size, and mirror it where `flip` says so.

    images: (B, C, H, W) of any dtype; top, left: (B,) int64 in 0 … 8, where the window starts; flip: (B,) bool.
    Returns (B, C, H, W). uint8 moves a quarter of the bytes of float32, so it is best used before the conversion.
    """
    height, width = images.shape[-2:]
    padded = F.pad(images, (PADDING,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, 9, 9, H, W): a view, nothing is copied
    crops = windows[torch.arange(len(images), device=images.device), :, top, left]
    return torch.where(flip[:, None, None, None], crops.flip(3), crops)
