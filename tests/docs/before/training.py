"""A few images of CIFAR-10's shape and a network for them."""

import torch
from torch import nn

import lingraft


class MyNetwork(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 2, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))


torch.manual_seed(0)
model, images, labels = MyNetwork(), torch.rand(40, 3, 32, 32), torch.arange(40) % 10
validation = lingraft.ImageSet(torch.rand(10, 3, 32, 32), torch.arange(10))
