"""Keeping freed memory. (How much it saves depends on the allocator and the system: see benchmarks/grafting.py.)"""

import pytest
import torch

from lingraft.memory import kept_memory


def test_it_can_be_nested_and_left_by_an_error():
    with kept_memory(), kept_memory():
        inside = torch.ones(1 << 22)
    with pytest.raises(ValueError, match="left"), kept_memory():
        raise ValueError("left")
    assert inside.sum() == 1 << 22
    assert torch.ones(1 << 22).sum() == 1 << 22
