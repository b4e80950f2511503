"""Every supported operation as a layer with random settings: what random networks are built of."""

import operator
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]


class Apply(nn.Module):
    """A function of one tensor as a layer; traced into, so the verifier sees the function's own calls."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Join(nn.Module):
    """Several branches of the same input, put together by a function of their outputs."""

    def __init__(self, function: Callable[..., Tensor], *branches: nn.Module):
        super().__init__()
        self.function, self.branches = function, nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(*[branch(x) for branch in self.branches])


class Affine(nn.Module):
    """Per-channel scale and shift, written in one of several ways."""

    def __init__(self, shape: Shape, way: int):
        super().__init__()
        size = (shape[0],) + (1,) * (len(shape) - 1)
        self.register_buffer("scale", 0.5 + torch.rand(size))
        self.register_buffer("shift", torch.randn(size) / 4)
        self.way = way % 6

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.scale, self.shift
        if self.way == 0:
            return x * scale + shift
        if self.way == 1:
            return (x - shift) / scale
        if self.way == 2:
            return shift - scale * x
        if self.way == 3:
            return torch.sub(shift, torch.neg(x), alpha=1.5)
        if self.way == 4:
            return torch.add(x, shift, alpha=-0.5).mul(0.7)
        return -x + 0.3


def activation(rng: random.Random, kind: str) -> nn.Module:
    """An activation of the kind, written in one of the ways people write it."""
    choices: dict[str, list[Callable[[], nn.Module]]] = {
        "relu": [
            nn.ReLU,
            lambda: nn.ReLU(inplace=True),
            lambda: Apply(F.relu),
            lambda: Apply(torch.relu),
            lambda: Apply(lambda x: x.relu()),
        ],
        "leaky": [lambda: nn.LeakyReLU(rng.uniform(-0.3, 1.4)), lambda: Apply(lambda x: F.leaky_relu(x, 0.1))],
        "sigmoid": [nn.Sigmoid, lambda: Apply(torch.sigmoid)],
        "tanh": [nn.Tanh, lambda: Apply(lambda x: x.tanh())],
    }
    return rng.choice(choices[kind])()


def _conv(rng: random.Random, shape: Shape, out: int | None = None, same: bool = False) -> nn.Module:
    """A convolution with random settings that fits the map."""
    channels, height, width = shape
    if same:
        kernel = rng.choice([1, 2, 3])
        return nn.Conv2d(channels, out or channels, kernel, padding="same", dilation=rng.choice([1, 2]))
    groups = rng.choice([g for g in (1, 1, 2, 3) if channels % g == 0])
    out = out or groups * rng.choice([1, 2])
    kernel = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    padding = rng.choice([0, 1]), rng.choice([0, 1, 2])
    dilation = rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
    fits = [
        side + 2 * p >= d * (k - 1) + 1
        for side, p, d, k in zip((height, width), padding, dilation, kernel, strict=False)
    ]
    dilation = tuple(d if ok else 1 for d, ok in zip(dilation, fits, strict=False))
    kernel = tuple(k if ok else 1 for k, ok in zip(kernel, fits, strict=False))
    stride = rng.choice([1, 1, 2]), rng.choice([1, 2, 3])
    return nn.Conv2d(channels, out, kernel, stride, padding, dilation, groups, bias=rng.random() < 0.8)


def _pool(rng: random.Random, shape: Shape, largest: bool) -> nn.Module:
    _, height, width = shape
    kernel = min(height, rng.choice([2, 3])), min(width, rng.choice([1, 2]))
    padding = tuple(rng.choice([0, k // 2]) for k in kernel)
    stride = rng.choice([1, 2]), rng.choice([1, 2])
    if largest:
        dilation = (2 if height + 2 * padding[0] > 2 * (kernel[0] - 1) else 1, 1)
        return rng.choice([
            nn.MaxPool2d(kernel, stride, padding, dilation),
            Apply(lambda x: F.max_pool2d(x, kernel, stride, padding)),
        ])  # fmt: skip
    return rng.choice([
        nn.AvgPool2d(kernel, stride, padding),
        Apply(lambda x: F.avg_pool2d(x, kernel, stride, padding)),
        nn.AdaptiveAvgPool2d((rng.choice([d for d in range(1, height + 1) if height % d == 0]), width)),
        Apply(lambda x: F.adaptive_avg_pool2d(x, 1)),
    ])  # fmt: skip


def _move(rng: random.Random, shape: Shape) -> nn.Module:
    channels, height, width = shape
    size = channels * height * width
    return Apply(rng.choice([
        lambda x: x.permute(0, 2, 3, 1),
        lambda x: x.transpose(2, 3),
        lambda x: torch.permute(x, (0, 3, 1, 2)),
        lambda x: x[:, :, : max(1, height - 1)],
        lambda x: x[:, [0] + list(range(channels))],
        lambda x: x.reshape(x.size(0), height, channels, width),
        lambda x: x.unsqueeze(1).squeeze(1).reshape(x.shape[0], 1, size // width, width),
        lambda x: torch.flatten(x, 2).unsqueeze(1),
    ]))  # fmt: skip


def _pad(rng: random.Random) -> nn.Module:
    return rng.choice([
        nn.ZeroPad2d((1, 0, 0, 2)),
        Apply(lambda x: F.pad(x, (0, 1, 1, 0))),
        Apply(lambda x: F.pad(x, (1, -1, 0, 1))),
        Apply(lambda x: F.pad(x, (0, 0, 0, 0, 1, 0))),
    ])  # fmt: skip


def _residual(rng: random.Random, shape: Shape, act: Callable[[], nn.Module]) -> nn.Module:
    branch = nn.Sequential(_conv(rng, shape, same=True), act(), _conv(rng, shape, shape[0], same=True))
    skip = rng.choice([nn.Identity(), _conv(rng, shape, shape[0], same=True), Affine(shape, rng.randrange(6))])
    way = rng.choice([operator.add, operator.sub, lambda a, b: torch.add(a, b, alpha=1.7), lambda a, b: a.sub(b)])
    return Join(way, skip, branch)


def _concat(rng: random.Random, shape: Shape, act: Callable[[], nn.Module]) -> nn.Module:
    parts = [nn.Identity(), nn.Sequential(_conv(rng, shape, 1, same=True), act())]
    dim = rng.choice([1, 1, 2, -1]) if shape[0] == 1 else 1
    return Join(lambda *tensors: torch.cat(tensors, dim), *parts)


OPERATIONS = ("conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine", "move", "identity")
KINDS = ("relu", "leaky", "sigmoid", "tanh")


def operation(rng: random.Random, name: str, shape: Shape, act: Callable[[], nn.Module]) -> nn.Module:
    """The operation of that name with random settings, for a map of that shape (channels, height, width)."""
    return {
        "conv": lambda: _conv(rng, shape),
        "batch norm": lambda: nn.BatchNorm2d(shape[0], affine=rng.random() < 0.8),
        "average": lambda: _pool(rng, shape, largest=False),
        "maximum": lambda: _pool(rng, shape, largest=True),
        "residual": lambda: _residual(rng, shape, act),
        "concat": lambda: _concat(rng, shape, act),
        "pad": lambda: _pad(rng),
        "affine": lambda: Affine(shape, rng.randrange(6)),
        "move": lambda: _move(rng, shape),
        "identity": lambda: rng.choice([nn.Identity(), nn.Dropout(0.4), Apply(lambda x: F.dropout(x, 0.3, False))]),
    }[name]()


def randomize(model: nn.Module, seed: int, gain: float = 1.2) -> nn.Module:
    """Weights that leave many neurons unstable, and batch norm statistics that are not trivial."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                fan = module.weight[0].numel()
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * gain / fan**0.5)
                if module.bias is not None:
                    module.bias.copy_(torch.randn(module.bias.shape, generator=generator) * 0.3)
            elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
                module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) / 3)
                module.running_var.copy_(0.3 + torch.rand(module.running_var.shape, generator=generator))
                if module.affine:
                    module.weight.copy_(torch.randn(module.weight.shape, generator=generator))
                    module.bias.copy_(torch.randn(module.bias.shape, generator=generator) / 3)
    return model.double().eval()
