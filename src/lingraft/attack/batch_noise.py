"""Noise for the images of a batch, also where several processes have a part of the batch each.

Each of them draws for the whole batch and takes its part, so that together they have what a single process would draw.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

#: number of images of the batch before ours, and of all of them; None: ours are all
_part: ContextVar[tuple[int, int] | None] = ContextVar("part", default=None)


@contextmanager
def part_of_batch(first: int, total: int) -> Iterator[None]:
    """Inside, images are those from number `first` on of a batch of `total`."""
    token = _part.set((first, total))
    try:
        yield
    finally:
        _part.reset(token)


def noise_like(images: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
    """Noise of the shape and on the device of `images`; `draw` fills a tensor in place."""
    part = _part.get()
    if part is None:
        return draw(torch.empty_like(images))
    first, total = part
    return draw(images.new_empty(total, *images.shape[1:]))[first : first + len(images)]
