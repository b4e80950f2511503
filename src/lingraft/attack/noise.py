"""Uniform noise that is a pure function of (seed, restart, image, pixel).

A generator gives numbers in the order it is asked, so what an image gets would depend on the batch it is in. Here each
number is a hash of its own coordinates: the same for any batch size, order, number of images and device.
"""

import hashlib
import math

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def _scramble(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers (held in int64) without visible structure: Wellons' `lowbias32`."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _MASK
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def uniform_noise(seed: int, restart: Tensor, image: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Numbers in [−1, 1): row n depends on seed, restart[n] and image[n] only.

    Shape: restart (N,) and image (N,), int64 → (N, *shape), float32, on the device of `image`.
    """
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    low, high = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
    pixel = torch.arange(math.prod(shape), device=image.device)
    # two words a row, so that rows do not come out as shifts of each other
    first = _scramble(_scramble(image & _MASK ^ low) + restart & _MASK)
    second = _scramble(_scramble(restart & _MASK ^ high) + image & _MASK)
    bits = _scramble(_scramble((pixel + first[:, None]) & _MASK) ^ second[:, None])
    return (bits >> 8).to(torch.float32).mul_(2.0**-23).sub_(1).view(-1, *shape)
