"""Networks with a counterexample that is known and hard to find: a narrow spike around one point, for every operation.

The idea is that of SoundnessBench (Zhou et al., "Testing neural network verifiers: a soundness benchmark with hidden
counterexamples", 2024), which trains such networks. Here they are built, so that each has one operation that matters:
the spike's height falls with the distance of what the operation makes of a point from what it makes of the known one.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model.activations import KNOWN

#: The known point, in the box from −1 to 1, and by how much the margin is below 0 there.
POINT, DEPTH = (0.37, -0.61), 0.05

Function = Callable[[Tensor], Tensor]

#: What is made of 8 numbers (N, 8), by operation; all are within about ±3.
OPERATIONS: dict[str, Function] = {
    "product": lambda x: x[:, :4] * x[:, 4:],
    "square": lambda x: x * x,
    "quotient": lambda x: x[:, :4] / (4.5 + x[:, 4:]),
    "reciprocal": lambda x: torch.reciprocal(x.abs() + 0.5),
    "matrix product": lambda x: (x.unflatten(1, (2, 4)) @ x.unflatten(1, (4, 2))).flatten(1),
    "exponential": torch.exp,
    "square root": lambda x: torch.sqrt(x.abs() + 0.01),
    "sine": lambda x: torch.sin(2 * x),
    "cosine": lambda x: torch.cos(2 * x),
    "power": lambda x: x**5 / 81,
    "cube": lambda x: x**3 / 9,
    "softmax": lambda x: torch.softmax(2 * x, 1),
    "sign": torch.sign,
    "floor": lambda x: torch.floor(2 * x),
    "max pooling 1d": lambda x: F.max_pool1d(x[:, None], 2)[:, 0],
    "max pooling 2d": lambda x: F.max_pool2d(x.view(-1, 2, 2, 2), 2).flatten(1),
    "average pooling 1d": lambda x: F.avg_pool1d(x[:, None], 2)[:, 0],
    "average pooling 2d": lambda x: F.avg_pool2d(x.view(-1, 2, 2, 2), 2).flatten(1),
    "adaptive average pooling 1d": lambda x: F.adaptive_avg_pool1d(x[:, None], 2)[:, 0],
    "adaptive average pooling 2d": lambda x: F.adaptive_avg_pool2d(x.view(-1, 2, 2, 2), 1).flatten(1),
    "concatenation": lambda x: torch.cat([torch.relu(x[:, 2:]), x[:, :2]], 1),
    "sum": lambda x: torch.relu(x).sum(1, keepdim=True) + x,
}


class _Weighted(nn.Module):
    """A layer on the 8 numbers as maps, as ONNX has them, and what is bent of it."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]):
        super().__init__()
        self.layer, self.shape = layer.double().eval(), shape

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x.view(-1, *self.shape)).flatten(1))


def _weighted() -> dict[str, Function]:
    """Layers with weights, whose numbers are the same every time."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8)
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return {
        "linear": _Weighted(nn.Linear(8, 6), (8,)),
        "convolution": _Weighted(nn.Conv2d(2, 3, 2, padding=1), (2, 2, 2)),
        "transposed convolution": _Weighted(nn.ConvTranspose2d(2, 2, 2, stride=2), (2, 2, 2)),
        "batch norm": _Weighted(norm, (8,)),
    }


#: What only moves values, or adds them up, bent behind it.
_LINEAR: dict[str, Function] = {
    "difference": lambda x: x[:, :4] - x[:, 4:],
    "sum of two": lambda x: x[:, :4] + x[:, 4:],
    "negation": lambda x: -x,
    "mean": lambda x: x.unflatten(1, (4, 2)).mean(2),
    "padding": lambda x: F.pad(x.view(-1, 2, 2, 2), (1, 0, 0, 1), mode="reflect").flatten(1),
    "resizing": lambda x: F.interpolate(x.view(-1, 2, 2, 2), scale_factor=2, mode="bilinear").flatten(1),
    "expand": lambda x: x[:, :4].unsqueeze(2).expand(-1, -1, 2).flatten(1),
    "identity": lambda x: x.contiguous(),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "flatten": lambda x: x.unflatten(1, (2, 4)).flatten(1),
    "unflatten": lambda x: x.unflatten(1, (2, 4))[:, 1],
    "reshape": lambda x: x.reshape(-1, 4, 2)[:, :, 1],
    "squeeze": lambda x: x[:, :, None].squeeze(2),
    "unsqueeze": lambda x: x.unsqueeze(1)[:, 0],
    "permute": lambda x: x.view(-1, 2, 2, 2).permute(0, 3, 1, 2).flatten(1),
    "transpose": lambda x: x.view(-1, 4, 2).transpose(1, 2).flatten(1),
    "index": lambda x: x[:, 1::2],
    "narrow": lambda x: x.narrow(1, 2, 5),
    "select": lambda x: x.view(-1, 4, 2).select(2, 1),
    "flip": lambda x: x.flip(1),
    "chunk": lambda x: x.chunk(2, 1)[0] - 2 * x.chunk(2, 1)[1],
    "split": lambda x: x.split(4, 1)[0] - 2 * x.split(4, 1)[1],
    "unbind": lambda x: x.view(-1, 2, 4).unbind(1)[0] - 2 * x.view(-1, 2, 4).unbind(1)[1],
    "stack": lambda x: torch.stack([x[:, :4], 2 * x[:, 4:]], 1).flatten(1),
    "pixel shuffle": lambda x: F.pixel_shuffle(x.view(-1, 8, 1, 1), 2).flatten(1),
    "pixel unshuffle": lambda x: F.pixel_unshuffle(x.view(-1, 2, 2, 2), 2).flatten(1),
    "channel shuffle": lambda x: F.channel_shuffle(x.view(-1, 4, 2, 1), 2).flatten(1),
}


class _Bent(nn.Module):
    def __init__(self, function: Function):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.function(x))


OPERATIONS |= {name: _Bent(function) for name, function in _LINEAR.items()} | _weighted()


#: Activations that are no layers, with arguments that bend what they get.
_CALLED: dict[str, Function] = {
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-1.0, 0.5),
    "clamp_min": lambda x: x.clamp_min(-0.5),
    "clamp_max": lambda x: x.clamp_max(0.5),
}
OPERATIONS |= {name: _CALLED[name] if name in _CALLED else record.module() for name, record in KNOWN.items()}


class Spike(nn.Module):
    """Two logits for two numbers: the first is larger by 1, but for a spike around POINT, where it is smaller."""

    def __init__(self, name: str, sharp: float):
        super().__init__()
        torch.manual_seed(0)
        self.operation, self.sharp = OPERATIONS[name], sharp
        self.first = nn.Linear(2, 8)
        self.relu, self.last = nn.ReLU(), nn.Linear(1, 2)
        self.double().eval()
        point = torch.tensor([POINT], dtype=torch.float64)
        with torch.no_grad():
            self.last.weight.copy_(torch.tensor([[0.0], [1 + DEPTH]]))
            self.last.bias.copy_(torch.tensor([1.0, 0.0]))
            made = self.operation(self.first(point))
            self.register_buffer("weights", torch.randn(made.shape[1], 1).double())
            self.register_buffer("target", torch.cat([made @ self.weights, point], 1))

    def forward(self, x: Tensor) -> Tensor:
        made = self.operation(self.first(x)) @ self.weights
        apart = torch.abs(torch.cat([made, x], 1) - self.target)
        return self.last(self.relu(1 - self.sharp * apart.sum(1, keepdim=True)))
