"""Layers that the architectures share."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """(x − mean) / std per channel: the first layer of every model, so that ε is always in pixels of [0, 1].

    Shape: (N, C, H, W) → (N, C, H, W).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut, no batch norm (Bak et al. 2021, the ResNets of VNN-COMP 2021)."""

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels_in == channels
            else nn.Conv2d(channels_in, channels, 1, stride=stride)
        )
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu2(self.conv2(self.relu1(self.conv1(x))) + self.shortcut(x))
