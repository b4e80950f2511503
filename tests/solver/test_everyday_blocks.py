"""Blocks of the networks that people take from torchvision, written anew and small: they convert as they stand."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft.model.activations import of_module
from lingraft.solver.network import Network

Act = Callable[[], nn.Module]


def conv(inputs: int, outputs: int, kernel: int, act: Act | None = None, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch norm, activation."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


class Residual(nn.Module):
    """x + f(x), with an activation behind it or not."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None = None, act: nn.Module | None = None):
        super().__init__()
        self.branch, self.shortcut, self.act = branch, shortcut or nn.Identity(), act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.shortcut(x) + self.branch(x))


class Squeeze(nn.Module):
    """Squeeze and excitation: every channel times a gate between 0 and 1 that depends on all of them."""

    def __init__(self, channels: int, act: Act):
        super().__init__()
        self.avgpool, self.activation, self.scale = nn.AdaptiveAvgPool2d(1), act(), nn.Sigmoid()
        self.fc1, self.fc2 = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


class Fire(nn.Module):
    def __init__(self, act: Act):
        super().__init__()
        self.squeeze, self.squeeze_activation = nn.Conv2d(4, 2, 1), act()
        self.expand1x1, self.expand3x3 = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 3, padding=1)
        self.activation = act()

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        return torch.cat([self.activation(self.expand1x1(x)), self.activation(self.expand3x3(x))], 1)


class ConvNext(nn.Module):
    """Its layer norm aside: depthwise 7×7, linear layers on the last dimension, a factor for each channel."""

    def __init__(self, act: Act):
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 7, padding=3, groups=4)
        self.inner = nn.Sequential(nn.Linear(4, 8), act(), nn.Linear(8, 4))
        self.layer_scale = nn.Parameter(torch.full((4, 1, 1), 0.3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.layer_scale * y


BLOCKS: dict[str, Callable[[Act], nn.Module]] = {
    "mobilenet_v2": lambda act: Residual(
        nn.Sequential(conv(4, 8, 1, act), conv(8, 8, 3, act, groups=8), conv(8, 4, 1))
    ),
    "squeezenet": lambda act: nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True), Fire(act)),
    "efficientnet_b0": lambda act: Residual(
        nn.Sequential(conv(4, 8, 1, act), conv(8, 8, 3, act, groups=8), Squeeze(8, act), conv(8, 4, 1))
    ),
    "convnext_tiny": ConvNext,
    "regnet_x": lambda act: Residual(
        nn.Sequential(conv(4, 8, 1, act), conv(8, 8, 3, act, 2, groups=2), conv(8, 8, 1)), conv(4, 8, 1, None, 2), act()
    ),
    "regnet_y": lambda act: Residual(
        nn.Sequential(conv(4, 8, 1, act), conv(8, 8, 3, act, 2, 2), Squeeze(8, act), conv(8, 8, 1)),
        conv(4, 8, 1, None, 2),
        act(),
    ),
}
#: Which activation each has in torchvision, besides ReLU.
OWN = {"mobilenet_v2": nn.ReLU6, "efficientnet_b0": nn.SiLU, "convnext_tiny": nn.GELU}


@pytest.mark.parametrize(
    ("name", "act"), [*((name, nn.ReLU) for name in BLOCKS), *((name, act) for name, act in OWN.items())]
)
def test_blocks_convert_and_are_bounded_and_exported(name: str, act: type[nn.Module], tmp_path) -> None:
    if of_module(act()) is None:
        pytest.skip(f"{act.__name__} is not known yet")
    torch.manual_seed(0)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3), nn.ReLU()]
    model = nn.Sequential(conv(2, 4, 3, nn.ReLU), BLOCKS[name](act), *head)
    images = torch.rand(16, 2, 6, 6)
    model(images)  # statistics of batch norm
    model = model.eval().double()
    network = Network.from_module(model, (2, 6, 6))
    box = images[0].double() - 0.02, images[0].double() + 0.02
    points = box[0] + (box[1] - box[0]) * torch.rand(50, 2, 6, 6).double()
    with torch.no_grad():
        torch.testing.assert_close(network.forward(points), model(points), rtol=1e-9, atol=1e-9)
        values = model[:-1](points)
    for method in ("intervals", "crown"):
        lower, upper = lingraft.bounds(model, box, method)["5"]
        assert bool(((values >= lower) & (values <= upper)).all())
    lingraft.export_onnx(model, tmp_path / "net.onnx", input_shape=(2, 6, 6))  # compares the two
