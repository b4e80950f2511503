"""Layers with the activations that people's models have, by name: one of each kind, and of other arguments."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Called(nn.Module):
    """An activation that is called as a function or method."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class OwnSlopes(nn.Module):
    """PReLU as a function of a parameter of the model."""

    def __init__(self, channels: int):
        super().__init__()
        self.slopes = nn.Parameter(torch.linspace(-0.3, 1.4, channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.slopes)


#: name → (kind, makes a layer for so many channels); these are made of lines
LINES: dict[str, tuple[str, Callable[[int], nn.Module]]] = {
    "relu6": ("relu6", lambda channels: nn.ReLU6(inplace=True)),
    "hardtanh": ("hardtanh", lambda channels: nn.Hardtanh(-0.7, 1.1)),
    "clamp": ("clamp", lambda channels: Called(lambda x: x.clamp(-0.4, 0.9))),
    "clip_max": ("clamp", lambda channels: Called(lambda x: torch.clip(x, max=0.5))),
    "clamp_min": ("clamp_min", lambda channels: Called(lambda x: torch.clamp_min(x, 0.25))),
    "clamp_max": ("clamp_max", lambda channels: Called(lambda x: x.clamp_max(0.3))),
    "prelu": ("prelu", lambda channels: nn.PReLU()),
    "prelu_channels": ("prelu", OwnSlopes),
    "hardsigmoid": ("hardsigmoid", lambda channels: nn.Hardsigmoid()),
    "abs": ("abs", lambda channels: Called(torch.abs)),
}
SMOOTH: dict[str, tuple[str, Callable[[int], nn.Module]]] = {
    "gelu": ("gelu", lambda channels: nn.GELU()),
    "gelu_tanh": ("gelu", lambda channels: Called(lambda x: F.gelu(x, approximate="tanh"))),
    "silu": ("silu", lambda channels: nn.SiLU()),
    "mish": ("mish", lambda channels: nn.Mish()),
    "hardswish": ("hardswish", lambda channels: nn.Hardswish()),
    "softplus": ("softplus", lambda channels: nn.Softplus()),
    "softplus_beta": ("softplus", lambda channels: nn.Softplus(beta=3)),
    "elu": ("elu", lambda channels: nn.ELU()),
    "elu_alpha": ("elu", lambda channels: nn.ELU(2.5)),
    "celu": ("celu", lambda channels: nn.CELU(0.4)),
    "selu": ("selu", lambda channels: nn.SELU()),
}
EVERYDAY = {**LINES, **SMOOTH}


def network(name: str, seed: int, scale: float = 3.0) -> nn.Module:
    """Two inputs and three classes, which are equal in the middle of the square, so that each has its part of it."""
    torch.manual_seed(seed)
    make = EVERYDAY[name][1]
    model = nn.Sequential(nn.Linear(2, 8), make(8), nn.Linear(8, 6), make(6), nn.Linear(6, 3)).eval()
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.weight *= scale
        model[4].bias -= model(torch.full((1, 2), 0.5))[0]
    return model
