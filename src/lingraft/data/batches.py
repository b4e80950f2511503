"""Batches of images as whole tensors."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lingraft.ball import PIXELS
from lingraft.data.augment import PADDING, crop_and_flip
from lingraft.data.images import ImageSet, to_pixels
from lingraft.errors import LingraftError

#: Images selected, cropped, flipped and converted at a time, where that is more than a batch. An operation on a CPU
#: waits for all threads, which takes milliseconds when other programs want the cores too: better few for many batches.
_AHEAD = 2048


class Batches:
    """The batches of an image set; each pass over it is one epoch, and the last batch may be smaller.

    Yields (pixels, labels): float32 of shape (B, *shape), and int64 of shape (B,), both on `device`.
    With `shuffle` every pass has a new order; with `augment` new crops (padding 4) and horizontal flips. Everything
    random of a pass is drawn from `generator` (default: torch's own) when the pass begins, so the same state of the
    generator gives the same pass, whatever else uses the generator in between.
    """

    def __init__(
        self,
        data: ImageSet,
        size: int,
        *,
        shuffle: bool = False,
        augment: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ):
        if size < 1:
            raise LingraftError(f"a batch needs at least 1 image, not {size}.")
        if augment and (data.images.ndim != 4 or data.clip not in (PIXELS, None)):
            raise LingraftError("augment crops and flips images (N, C, H, W) with values in [0, 1]. Leave it out.")
        self.size = size
        self.shuffle = shuffle
        self.augment = augment
        self.generator = generator
        # uint8 images stay uint8 here: a quarter of the memory, and of the traffic up to the conversion of each batch
        self.images = data.images.to(device)
        self.labels = data.labels.to(device)

    def __len__(self) -> int:
        return math.ceil(len(self.images) / self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.images)
        order = self._draw(torch.randperm, count) if self.shuffle else None
        if self.augment:
            offsets = self._draw(torch.randint, 2 * PADDING + 1, (2, count))
            flips = self._draw(torch.randint, 2, (count,)).bool()
        stride = self.size * max(1, _AHEAD // self.size)
        for start in range(0, count, stride):
            part = slice(start, start + stride)
            if order is None:
                images, labels = self.images[part], self.labels[part]
            else:  # index_select copies whole images; indexing with a tensor goes byte by byte, 20 times slower
                images, labels = self.images.index_select(0, order[part]), self.labels.index_select(0, order[part])
            if self.augment:
                images = crop_and_flip(images, offsets[0, part], offsets[1, part], flips[part])
            pixels = to_pixels(images)
            for at in range(0, len(pixels), self.size):
                batch = slice(at, at + self.size)
                # detached: for autograd no longer a part of `pixels`, so that an attack may change it in place
                yield pixels[batch].detach(), labels[batch]

    def _draw(self, draw: Callable[..., Tensor], *sizes: int | tuple[int, ...]) -> Tensor:
        """Random integers on our device, drawn on the generator's, which may be another."""
        where = "cpu" if self.generator is None else self.generator.device
        return draw(*sizes, generator=self.generator, device=where).to(self.images.device)
