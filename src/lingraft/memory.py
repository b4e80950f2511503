"""Freed memory kept for reuse: on Linux, getting every large tensor anew from the system costs more than filling it."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of these settings in glibc's malloc.h
_LARGEST = 2**31 - 1
#: where glibc's own thresholds end up in a process that frees large blocks
_USUAL_MMAP, _USUAL_TRIM = 32 << 20, 64 << 20


@contextmanager
def kept_memory() -> Iterator[None]:
    """Inside, memory that is freed stays with the process; at the end it goes back to the system.

    Training makes and frees the same large tensors in every step; glibc gives most of them back to the system at once
    and the system then clears each page again at its first use. Where there is no glibc this does nothing.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is None or not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(_TRIM_THRESHOLD, _LARGEST)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP)
        libc.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
        libc.malloc_trim(ctypes.c_size_t(0))
