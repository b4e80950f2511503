"""Keeping freed memory."""

import resource
import sys

import pytest
import torch

from lingraft.memory import kept_memory


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another allocator")
def test_memory_that_is_freed_is_used_again():
    def work() -> int:
        before = page_faults()
        for _ in range(10):
            torch.ones(64 << 18)  # 64 MB
        return page_faults() - before

    with kept_memory():
        torch.ones(64 << 18)
        inside = work()
    outside = work()
    assert inside < outside / 2


def test_it_can_be_nested_and_left_by_an_error():
    with kept_memory(), kept_memory():
        pass
    with pytest.raises(ValueError, match="left"), kept_memory():
        raise ValueError("left")
    assert torch.ones(10).sum() == 10
