"""Small networks with every kind of layer, in float64, and samples of boxes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lingraft
from lingraft.attack.ball import bounds
from lingraft.training.differentiable import Interval

SHAPE = (1, 4, 4)


class Block(nn.Module):
    """Batch norm, a shortcut added in place, and one in-place ReLU called twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.relu(out)


class Functional(nn.Module):
    """Activations and reshaping as functions, a line before, a sum of two branches, logits that are no layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(16, 9), nn.Linear(9, 9), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.first(((x - 0.3) / 0.7).flatten(1)), 0.1)
        x = x - self.second(x).relu() * 0.5
        return -self.third(x)


def make(name: str) -> nn.Module:
    torch.manual_seed(5)
    if name == "functional":
        model: nn.Module = Functional()
    elif name == "batch-norm":
        stem = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True))
        model = nn.Sequential(stem, Block(3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))
    else:
        layers = [nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten()]
        model = nn.Sequential(*layers, nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: not the identity
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, -1, 1)
    model = model.double().eval()
    if name == "grafted":
        masks = {site.name: torch.rand(site.shape) < 0.5 for site in lingraft.sites(model, SHAPE)}
        model = lingraft.graft(model, masks, slope=-0.6, intercept=0.2)
    return model


@pytest.fixture(params=["plain", "grafted", "functional", "batch-norm"])
def network(request: pytest.FixtureRequest) -> nn.Module:
    """One of the networks, for images (1, 4, 4) and 3 classes, in eval mode."""
    return make(request.param)


@pytest.fixture
def build() -> Callable[[str], nn.Module]:
    """build(name) → one of them."""
    return make


@pytest.fixture
def some_box() -> Callable[..., tuple[Tensor, Tensor, Interval]]:
    """some_box(seed, eps) → four images, their labels, and the boxes around them."""

    def draw(seed: int = 0, eps: float = 0.1) -> tuple[Tensor, Tensor, Interval]:
        generator = torch.Generator().manual_seed(seed)
        images = torch.rand(4, *SHAPE, dtype=torch.float64, generator=generator)
        labels = torch.randint(3, (4,), generator=generator)
        return images, labels, Interval(*bounds(images, eps))

    return draw


@pytest.fixture
def samples() -> Callable[[Interval], Tensor]:
    """samples(box) → (20, N, *shape): random points of the boxes and random corners of them."""

    def draw(box: Interval) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        parts = torch.rand(20, *box.lower.shape, dtype=torch.float64, generator=generator)
        parts[10:] = parts[10:].round()
        return box.lower + parts * (box.upper - box.lower)

    return draw
