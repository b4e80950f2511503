"""Several networks as one, for properties that relate their inputs and outputs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lingraft.formats.onnx_network import FlatNetwork, OnnxNetwork


class Part(NamedTuple):
    """A network, and which of the joined inputs are its inputs."""

    network: OnnxNetwork
    places: np.ndarray


class JoinedNetwork(FlatNetwork):
    """The outputs of all parts, one after the other, and if `with_inputs` the inputs behind them."""

    def __init__(self, parts: Sequence[Part], inputs: int, with_inputs: bool):
        self.parts, self.with_inputs = parts, with_inputs
        self.name = ", ".join(dict.fromkeys(part.network.name for part in parts))
        self.device = parts[0].network.device
        self.inputs, self.input_shape = inputs, (inputs,)
        self.outputs = sum(part.network.outputs for part in parts) + with_inputs * inputs
        self.module = _Joined(parts, with_inputs).to(self.device).eval()

    def run(self, x: np.ndarray) -> np.ndarray:
        """The outputs that onnxruntime gives one input, in float64."""
        values = [part.network.run(x[part.places]).astype(np.float64) for part in self.parts]
        return np.concatenate([*values, *([x.astype(np.float64)] if self.with_inputs else [])])


class _Joined(nn.Module):
    def __init__(self, parts: Sequence[Part], with_inputs: bool):
        super().__init__()
        self.networks = nn.ModuleList(part.network.module for part in parts)
        self.places = [part.places.tolist() for part in parts]
        self.shapes = [part.network.input_shape for part in parts]
        self.with_inputs = with_inputs

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for network, places, shape in zip(self.networks, self.places, self.shapes, strict=True):
            found.append(network(torch.unflatten(x[:, places], 1, shape)))
        return torch.cat([*found, *([x] if self.with_inputs else [])], 1)
