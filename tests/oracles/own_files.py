"""Networks and data of one's own as files: code, a table, images, an ONNX file."""

from pathlib import Path

import numpy as np
import torch

from lingraft import export_onnx
from lingraft.model.code import from_code

#: A network for tables of six features, a ResNet with batch norm for images (1, 8, 8); both have two classes.
CODE = """
import torch
from torch import nn

from blocks import Block


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.BatchNorm2d(2), nn.ReLU())
        self.block = Block(2)
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        return self.out(self.block(self.stem(x)).flatten(1))


def needs(width):
    return nn.Linear(width, 2)


number, ready = 3, mlp()
"""

BLOCK = """
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm, self.relu = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.norm(self.conv(x)) + x)
"""


def write_code(folder: Path) -> Path:
    """net.py, which imports what is beside it."""
    (folder / "blocks.py").write_text(BLOCK)
    (folder / "net.py").write_text(CODE)
    return folder / "net.py"


def write_data(path: Path, shape: tuple[int, ...], times: float = 1, divided: bool = True, **more: object) -> Path:
    """Two classes, told apart by the mean of their values, from 0 to `times`; 120 images to train on, 40 for testing."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 160)
    images = (draw.random((160, *shape)) * 0.3 + labels.reshape(-1, *(1 for _ in shape)) * 0.6) * times
    if divided:
        parts = {"train_images": images[:120], "train_labels": labels[:120]}
        np.savez(path, **parts, test_images=images[120:], test_labels=labels[120:], **more)
    else:
        np.savez(path, images=images[:120], labels=labels[:120], **more)
    return path


def write_onnx(folder: Path) -> Path:
    """net.onnx, the ResNet with random weights."""
    torch.manual_seed(0)
    model = from_code(f"{write_code(folder)}:ResNet").eval()
    export_onnx(model, folder / "net.onnx", input_shape=(1, 8, 8))
    return folder / "net.onnx"
