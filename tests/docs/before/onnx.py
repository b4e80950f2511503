"""A network as ONNX and a property of it as VNN-LIB, plain and packed."""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lingraft
from lingraft.formats.vnnlib_write import write_vnnlib

torch.manual_seed(0)
layers = nn.Conv2d(3, 2, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)
made = nn.Sequential(*layers).eval()
lingraft.export_onnx(made, "net.onnx", input_shape=(3, 32, 32))
image = np.full((3, 32, 32), 0.5, np.float32)
label = int(made(torch.from_numpy(image)[None]).argmax())
write_vnnlib("prop.vnnlib", image - 0.001, image + 0.001, label, 10)
Path("prop.vnnlib.gz").write_bytes(gzip.compress(Path("prop.vnnlib").read_bytes()))
