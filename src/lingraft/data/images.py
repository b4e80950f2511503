"""Images with their labels, whatever they come from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.errors import LingraftError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images and labels: a data set read by `lingraft.data.load`, or tensors of your own.

    images: (N, C, H, W), uint8 in 0 … 255 or float32 in [0, 1]; labels: (N,), int64, from 0. N is at least 1.
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.ndim != 4 or images.numel() == 0:
            raise LingraftError(
                f"images must have the shape (number, channels, height, width), none of them 0, not {_shape(images)}."
            )
        if labels.shape != images.shape[:1]:
            raise LingraftError(
                f"labels must have the shape ({len(images)},), one class index for each image, not {_shape(labels)}."
            )
        if images.dtype not in (torch.uint8, torch.float32):
            raise LingraftError(f"images must be uint8 in 0 … 255 or float32 in [0, 1], not {images.dtype}.")
        if labels.dtype != torch.int64:
            raise LingraftError(f"labels must be int64 class indices, not {labels.dtype}. Use labels.long().")
        if labels.device != images.device:
            raise LingraftError(
                f"images are on {images.device} but labels on {labels.device}. Put them on the same device."
            )
        if images.dtype == torch.float32:
            low, high = (value.item() for value in torch.aminmax(images))
            if not (low >= 0 and high <= 1):  # also false for NaN
                raise LingraftError(f"float images must lie in [0, 1], but these reach from {low:g} to {high:g}.")
        if (lowest := int(labels.min())) < 0:
            raise LingraftError(f"labels are class indices from 0, but one of them is {lowest}.")

    def __len__(self) -> int:
        return len(self.images)

    def take(self, which: int | slice) -> "ImageSet":
        """The first `which` images, or those of a slice; a view, nothing is copied unless the slice has a step."""
        if isinstance(which, int):
            if not 1 <= which <= len(self):
                raise LingraftError(f"cannot take {which} images of {len(self)}. Ask for 1 to {len(self)}.")
            which = slice(which)
        elif not range(len(self))[which]:
            raise LingraftError(f"the slice {which.start}:{which.stop} holds none of the {len(self)} images.")
        return ImageSet(self.images[which], self.labels[which])

    def pixels(self, index: slice | Tensor = slice(None)) -> Tensor:
        """A copy of the images at `index` as float32 in [0, 1], of shape (n, C, H, W)."""
        return to_pixels(self.images[index])


def to_pixels(images: Tensor) -> Tensor:
    """A copy as float32 in [0, 1]; uint8 is divided by 255. A copy, so that no attack in place can spoil the data."""
    if images.dtype == torch.float32:
        return images.clone()
    pixels = torch.empty_like(images, dtype=torch.float32)
    return torch.div(images, 255, out=pixels)  # converts and divides in one pass


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
