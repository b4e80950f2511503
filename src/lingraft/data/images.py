"""Images, or samples of any other kind, with their labels, whatever they come from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lingraft.ball import GIVEN, PIXELS, Clip, Range, require_inside, value_range
from lingraft.errors import LingraftError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images and labels: a data set read by `lingraft.data.load`, or tensors of your own.

    images: (N, *shape), e.g. (N, C, H, W), rows of a table (N, features) or sequences (N, T, features); uint8 in
    0 … 255, which means [0, 1], or float32 in the range `clip`. labels: (N,), int64, from 0. N is at least 1.

    `clip` is the lowest and the highest value that a sample can have, which no attack and no region leaves: two
    numbers, tensors that broadcast to the shape of one sample (a range for each feature), or None for no limits.
    """

    images: Tensor
    labels: Tensor
    clip: Range = PIXELS

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        object.__setattr__(self, "clip", value_range(self.clip))
        if images.ndim < 2 or images.numel() == 0:
            raise LingraftError(
                "images must have the shape (number, channels, height, width), tables (number, features), none of them"
                f" 0, not {_shape(images)}."
            )
        if labels.shape != images.shape[:1]:
            one_hot = labels.ndim == 2 and labels.shape[1] > 1
            raise LingraftError(
                f"labels must have the shape ({len(images)},), one class index for each image, not {_shape(labels)}."
                + (" One-hot labels become indices with labels.argmax(1)." if one_hot else "")
            )
        if images.dtype not in (torch.uint8, torch.float32):
            raise LingraftError(
                f"images must be uint8 in 0 … 255 or float32 in [0, 1], not {images.dtype}. Use images.float()."
            )
        if images.dtype == torch.uint8 and self.clip not in (PIXELS, None):
            raise LingraftError(
                "uint8 images mean values in [0, 1], their 255th parts. Leave out clip, or give images.float()."
            )
        if labels.dtype != torch.int64:
            raise LingraftError(f"labels must be int64 class indices, not {labels.dtype}. Use labels.long().")
        if labels.device != images.device:
            raise LingraftError(
                f"images are on {images.device} but labels on {labels.device}. Put them on the same device."
            )
        if images.dtype == torch.float32:
            require_inside(images, self.clip, "float images")
        if (lowest := int(labels.min())) < 0:
            raise LingraftError(f"labels are class indices from 0, but one of them is {lowest}.")

    @classmethod
    def of(cls, source: Any, count: int | None = None, clip: Clip = GIVEN) -> "ImageSet":
        """The images of whatever holds pairs of images and labels; with `count`, only its first ones.

        `source` is an ImageSet, a pair (images, labels) of tensors or arrays, a DataLoader or another iterable of such
        batches, or a Dataset of single pairs. It is read once, into memory. Floats become float32, labels int64.
        `clip` is the range of its values; by default that of an ImageSet, of anything else [0, 1].
        """
        if isinstance(source, cls):
            return source.take(slice(count)).within(clip)
        if isinstance(source, tuple | list) and len(source) == 2 and hasattr(source[0], "shape"):
            images, labels = map(_tensor, source)
        else:
            images, labels = _collected(source, count)
        images = images if images.dtype == torch.uint8 else images.float()
        return cls(images, _whole(labels), PIXELS if _is_given(clip) else value_range(clip)).take(slice(count))

    def __repr__(self) -> str:
        kind = str(self.images.dtype).removeprefix("torch.")
        classes = len(self.labels.unique())
        return f"ImageSet({len(self):,} images of shape {tuple(self.images.shape[1:])}, {kind}, {classes} classes)"

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
        return ImageSet(self.images[which], self.labels[which], self.clip)

    def within(self, clip: Clip) -> "ImageSet":
        """The same images with another range of values; "data" leaves it as it is."""
        return self if _is_given(clip) else replace(self, clip=value_range(clip))

    def pixels(self, index: slice | Tensor = slice(None)) -> Tensor:
        """A copy of the images at `index` as float32, uint8 ones in [0, 1], of shape (n, *shape)."""
        return to_pixels(self.images[index])


def to_pixels(images: Tensor) -> Tensor:
    """A copy as float32; uint8 is divided by 255. A copy, so that no attack in place can spoil the data."""
    if images.dtype == torch.float32:
        return images.clone()
    pixels = torch.empty_like(images, dtype=torch.float32)
    return torch.div(images, 255, out=pixels)  # converts and divides in one pass


def _collected(source: Any, count: int | None) -> tuple[Tensor, Tensor]:
    """All batches of a DataLoader, or all items of a Dataset, in one tensor each; stops after `count` images."""
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        pairs: Iterable[Any] = map(source.__getitem__, range(len(source)))  # it need not know how to end an iteration
    else:
        pairs = source
    if not isinstance(pairs, Iterable) and not hasattr(pairs, "__getitem__"):
        raise LingraftError(f"the data must be tensors, a DataLoader or a Dataset, not {type(source).__name__}.")
    parts: list[tuple[Tensor, Tensor]] = []
    seen = 0
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            given = type(pair).__name__ + (f" of {len(pair)}" if isinstance(pair, list | tuple) else "")
            raise LingraftError(f"the data must give pairs (images, labels), not {given}. Let it give only these two.")
        images, labels = map(_tensor, pair)
        parts.append((images, labels) if labels.ndim else (images[None], labels[None]))
        seen += len(parts[-1][0])
        if count is not None and seen >= count:
            break
    if not parts:
        raise LingraftError("the data hold no images.")
    shapes = {tuple(images.shape[1:]) for images, _ in parts}
    if len(shapes) > 1:
        raise LingraftError(f"the images must have the same shape, but have {', '.join(map(str, sorted(shapes)))}.")
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def _tensor(values: Any) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise LingraftError(
            f"images and labels must be tensors, arrays or numbers, not {type(values).__name__} ({error})."
            " Convert them in the data set."
        ) from error


def _is_given(clip: Clip) -> bool:
    return isinstance(clip, str) and clip == GIVEN


def _whole(labels: Tensor) -> Tensor:
    """Labels as int64, unless they are no whole numbers: then as they are, to be refused."""
    return labels if labels.is_floating_point() or labels.dtype == torch.bool else labels.long()


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
