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
    "power": lambda x: x**3 / 9,
    "softmax": lambda x: torch.softmax(2 * x, 1),
    "sign": torch.sign,
    "floor": lambda x: torch.floor(2 * x),
    "max pooling": lambda x: F.max_pool1d(x[:, None], 2)[:, 0],
    "average pooling": lambda x: F.avg_pool1d(x[:, None], 2)[:, 0],
    "concatenation": lambda x: torch.cat([torch.relu(x[:, 2:]), x[:, :2]], 1),
    "sum": lambda x: torch.relu(x).sum(1, keepdim=True) + x,
}


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
