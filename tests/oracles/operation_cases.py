"""Every operation of `lingraft.model.operations`, in the ways that people write it, as a small network around it."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: name → (operations, shape of the input, the layer or function of (network, value))
Case = tuple[tuple[str, ...], tuple[int, ...], nn.Module | Callable[..., Any]]

_MAP, _LINE, _ROWS, _VECTOR = (2, 5, 4), (3, 7), (3, 4), (6,)


def _old(wrap: Callable[[nn.Module], nn.Module], layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are deprecated, and in many models
        return wrap(layer)


def _made() -> dict[str, Case]:
    norms = torch.nn.utils.parametrizations
    return {
        "Conv2d": (("convolution",), _MAP, nn.Conv2d(2, 4, (3, 2), (2, 1), 1, (1, 2), 2)),
        "Conv2d same": (("convolution",), _MAP, nn.Conv2d(2, 2, (3, 2), padding="same")),
        "Conv2d reflect": (("convolution",), _MAP, nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")),
        "Conv2d circular": (("convolution",), _MAP, nn.Conv2d(2, 2, 3, padding=(1, 2), padding_mode="circular")),
        "Conv1d": (("convolution",), _LINE, nn.Conv1d(3, 6, 3, 2, 1, groups=3)),
        "conv2d": (("convolution",), _MAP, lambda net, x: F.conv2d(x, net.kernel, net.bias, padding=1)),
        "conv1d": (("convolution",), _LINE, lambda net, x: F.conv1d(x, net.line, stride=2)),
        "ConvTranspose2d": (("transposed convolution",), _MAP,
                            nn.ConvTranspose2d(2, 4, (3, 2), (2, 3), (1, 0), (1, 2), 2, True, (1, 2))),
        "ConvTranspose1d": (("transposed convolution",), _LINE, nn.ConvTranspose1d(3, 2, 4, 2, 3)),
        "Linear": (("linear",), _VECTOR, nn.Linear(6, 3)),
        "Linear of rows": (("linear",), _ROWS, nn.Linear(4, 2)),
        "Linear of maps": (("linear",), _MAP, nn.Linear(4, 2, bias=False)),
        "F.linear": (("linear",), _VECTOR, lambda net, x: F.linear(x, 2 * net.matrix, net.bias)),
        "x @ constant": (("matrix product",), _ROWS, lambda net, x: x @ net.square),
        "constant @ x": (("matrix product",), _MAP, lambda net, x: torch.matmul(net.five, x)),
        "BatchNorm2d": (("batch norm",), _MAP, nn.BatchNorm2d(2)),
        "BatchNorm1d of lines": (("batch norm",), _LINE, nn.BatchNorm1d(3)),
        "BatchNorm1d of vectors": (("batch norm",), _VECTOR, nn.BatchNorm1d(6, affine=False)),
        "F.batch_norm": (("batch norm",), _MAP,
                         lambda net, x: F.batch_norm(x, net.mean, net.variance, None, net.mean)),
        "weight_norm": (("convolution",), _MAP, norms.weight_norm(nn.Conv2d(2, 3, 3))),
        "spectral_norm": (("linear",), _VECTOR, norms.spectral_norm(nn.Linear(6, 3))),
        "old weight_norm": (("convolution",), _MAP, _old(nn.utils.weight_norm, nn.Conv2d(2, 3, 3))),
        "old spectral_norm": (("linear",), _VECTOR, _old(nn.utils.spectral_norm, nn.Linear(6, 3))),
        "MaxPool2d": (("max pooling 2d",), _MAP, nn.MaxPool2d((3, 2), (2, 1), (1, 0))),
        "MaxPool2d ceil": (("max pooling 2d",), _MAP, nn.MaxPool2d(3, 2, ceil_mode=True)),
        "MaxPool2d ceil padded": (("max pooling 2d",), _MAP, nn.MaxPool2d((2, 3), (3, 2), 1, ceil_mode=True)),
        "MaxPool1d": (("max pooling 1d",), _LINE, nn.MaxPool1d(2, 2, dilation=2, ceil_mode=True)),
        "AvgPool2d": (("average pooling 2d",), _MAP, nn.AvgPool2d(2, 1, 1)),
        "AvgPool2d ceil": (("average pooling 2d",), _MAP, nn.AvgPool2d(2, 3, ceil_mode=True)),
        "AvgPool2d ceil padded": (("average pooling 2d",), _MAP, nn.AvgPool2d(3, 2, 1, ceil_mode=True)),
        "AvgPool2d uncounted": (("average pooling 2d",), _MAP, nn.AvgPool2d(3, 2, 1, True, False)),
        "AvgPool2d divisor": (("average pooling 2d",), _MAP, nn.AvgPool2d(2, divisor_override=3)),
        "AvgPool1d": (("average pooling 1d",), _LINE, nn.AvgPool1d(3, 2, 1, True)),
        "avg_pool2d": (("average pooling 2d",), _MAP, lambda net, x: F.avg_pool2d(x, 2, stride=1)),
        "max_pool1d": (("max pooling 1d",), _LINE, lambda net, x: F.max_pool1d(x, 3)),
        "AdaptiveAvgPool2d 1": (("adaptive average pooling 2d",), _MAP, nn.AdaptiveAvgPool2d(1)),
        "AdaptiveAvgPool2d uneven": (("adaptive average pooling 2d",), _MAP, nn.AdaptiveAvgPool2d((3, 3))),
        "AdaptiveAvgPool1d": (("adaptive average pooling 1d",), _LINE, nn.AdaptiveAvgPool1d(3)),
        "Upsample nearest": (("resizing",), _MAP, nn.Upsample(scale_factor=2)),
        "Upsample nearest uneven": (("resizing",), _MAP, nn.Upsample((7, 3))),
        "Upsample bilinear": (("resizing",), _MAP, nn.Upsample(scale_factor=2, mode="bilinear")),
        "UpsamplingBilinear2d": (("resizing",), _MAP, nn.UpsamplingBilinear2d(scale_factor=2)),
        "interpolate bilinear uneven": (("resizing",), _MAP,
                                        lambda net, x: F.interpolate(x, scale_factor=1.3, mode="bilinear")),
        "interpolate linear": (("resizing",), _LINE, lambda net, x: F.interpolate(x, size=9, mode="linear")),
        "mean of maps": (("mean",), _MAP, lambda net, x: x.mean((2, 3))),
        "mean of channels": (("mean",), _MAP, lambda net, x: torch.mean(x, 1, keepdim=True)),
        "mean of rows": (("mean",), _ROWS, lambda net, x: x.mean(axis=-1)),
        "sum": (("sum",), _MAP, lambda net, x: x.sum(dim=[1, 3])),
        "sum of all": (("sum", "unsqueeze"), _VECTOR, lambda net, x: x.sum(1).unsqueeze(1)),
        "broadcast sum": (("sum of two", "mean"), _MAP, lambda net, x: torch.add(x.mean(3, keepdim=True), x, alpha=-2)),
        "difference": (("difference",), _MAP, lambda net, x: net.mean.view(2, 1, 1) - x),
        "named difference": (("difference",), _VECTOR, lambda net, x: torch.sub(x, other=2 * x)),
        "scale": (("product", "quotient", "negation"), _MAP, lambda net, x: -(x * net.mean.view(-1, 1, 1)) / 3),
        "broadcast by a constant": (("product", "index"), _MAP, lambda net, x: x[:, :1] * net.mean.view(2, 1, 1)),
        "product": (("product", "mean"), _MAP, lambda net, x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
        "square": (("product",), _VECTOR, lambda net, x: x * x),
        "torch.square": (("square", "sum of two"), _MAP, lambda net, x: torch.square(x) + x.square()),
        "quotient of values": (("quotient", "cosine"), _MAP, lambda net, x: x / (2.5 + torch.cos(x)) + 2 / (3 + x.cos())),
        "product of matrices": (("matrix product", "transpose"), _MAP, lambda net, x: x @ x.transpose(2, 3)),
        "product of rows": (("matrix product", "transpose"), _ROWS,
                            lambda net, x: torch.matmul(x.transpose(1, 2), torch.sigmoid(x))),
        "powers": (("power",), _ROWS, lambda net, x: x**3 + torch.pow(x, 2) + x.pow(4)),
        "powers below 0": (("power",), _VECTOR, lambda net, x: (2 + torch.sigmoid(x)) ** -2 + (0.5 + torch.sigmoid(x)) ** 0.5),
        "waves": (("sine", "cosine"), _MAP, lambda net, x: torch.sin(3 * x) + torch.cos(x)),
        "exponential": (("exponential", "reciprocal"), _ROWS, lambda net, x: torch.reciprocal(1 + torch.exp(-x))),
        "square root": (("square root",), _VECTOR, lambda net, x: torch.sqrt(x * x + 0.1)),
        "steps": (("sign", "floor"), _MAP, lambda net, x: torch.sign(x + 0.3) * net.mean.view(2, 1, 1) + torch.floor(x + 0.1)),
        "softmax": (("softmax",), _ROWS, lambda net, x: F.softmax(x, -1)),
        "softmax of channels": (("softmax",), _MAP, nn.Softmax(1)),
        "identity": (("identity", "dropout"), _MAP, lambda net, x: F.dropout(x.clone(), 0.5, False).contiguous()),
        "Dropout": (("dropout",), _MAP, nn.Dropout2d(0.3)),
        "flatten": (("flatten", "unflatten"), _MAP, lambda net, x: torch.flatten(input=x, start_dim=1).unflatten(1, (5, 8))),
        "Unflatten": (("unflatten",), _VECTOR, nn.Unflatten(1, (1, 2, 3))),
        "view": (("reshape",), _MAP, lambda net, x: x.view(x.size(0), 4, -1)),
        "squeeze": (("squeeze", "unsqueeze"), _ROWS, lambda net, x: x.unsqueeze(2).squeeze(2)),
        "permute": (("permute", "transpose"), _MAP, lambda net, x: x.permute(0, 2, 3, 1).transpose(1, 2)),
        "slices": (("index",), _MAP, lambda net, x: x[:, 1:, ..., ::2]),
        "places": (("index",), _MAP, lambda net, x: x[:, :, 2, None][:, [1, 0, 0]]),
        "last row": (("index",), _ROWS, lambda net, x: x[:, -1]),
        "narrow": (("narrow", "select", "flip"), _MAP, lambda net, x: x.narrow(2, 1, 3).select(-1, 2).flip(1, 2)),
        "chunk": (("chunk", "concatenation"), _MAP, lambda net, x: _swapped(x.chunk(2, 2))),
        "split": (("split",), _LINE, lambda net, x: x.split([2, 4, 1], dim=2)[1]),
        "unbind": (("unbind", "stack"), _ROWS, lambda net, x: _stacked(x.unbind(2))),
        "cat with a constant": (("concatenation",), _VECTOR,
                                lambda net, x: torch.cat([net.bias[None].expand(x.shape[0], -1), x, x], 1)),
        "pad": (("padding",), _MAP, lambda net, x: F.pad(x, (1, -1, 0, 2), value=0.5)),
        "zero pad": (("padding", "convolution"), _MAP, nn.Sequential(nn.ZeroPad2d((1, 0, 2, 0)), nn.Conv2d(2, 2, 2))),
        "ReflectionPad2d": (("padding",), _MAP, nn.ReflectionPad2d((1, 2, 0, 1))),
        "ReplicationPad1d": (("padding",), _LINE, nn.ReplicationPad1d(2)),
        "CircularPad2d": (("padding",), _MAP, nn.CircularPad2d((1, 2, 0, 1))),
        "expand": (("expand", "mean"), _MAP, lambda net, x: x.mean(1, keepdim=True).expand(-1, 3, -1, -1)),
        "PixelShuffle": (("pixel shuffle",), (4, 2, 3), nn.PixelShuffle(2)),
        "PixelUnshuffle": (("pixel unshuffle",), (1, 4, 2), nn.PixelUnshuffle(2)),
        "ChannelShuffle": (("channel shuffle",), (4, 2, 3), nn.ChannelShuffle(2)),
    }  # fmt: skip


def _swapped(parts: tuple[Tensor, Tensor]) -> Tensor:
    first, second = parts
    return torch.cat([second, first], dim=2)


def _stacked(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([parts[1], parts[-1]], 1)


class Around(nn.Module):
    """A ReLU with slopes and shifts of its own before an operation, and a ReLU and a linear layer behind it."""

    kernel: Tensor

    def __init__(self, shape: tuple[int, ...], operation: nn.Module | Callable[..., Any], bent: bool):
        super().__init__()
        self.bent = bent
        self.layer = operation if isinstance(operation, nn.Module) else nn.Identity()
        self.function = None if isinstance(operation, nn.Module) else operation
        self.slope, self.shift = (nn.Parameter(torch.randn(shape)) for _ in range(2))
        sizes = {"kernel": (3, 2, 2, 2), "line": (2, 3, 3), "matrix": (3, 6), "square": (4, 4), "five": (3, 5)}
        for name, size in {**sizes, "bias": (3,), "mean": (2,)}.items():
            self.register_buffer(name, torch.randn(size))
        self.register_buffer("variance", torch.rand(2) + 0.5)
        self.relu = nn.ReLU()
        with torch.no_grad():
            self.last = nn.Linear(self.eval().before(torch.zeros(1, *shape)).flatten(1).shape[1], 3)

    def before(self, x: Tensor) -> Tensor:
        """What goes into the last ReLU."""
        x = x * self.slope + self.shift
        x = torch.relu(x) if self.bent else x
        return self.layer(x) if self.function is None else self.function(self, x)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        return self.last(torch.flatten(self.relu(x) if self.bent else x, 1))


@cache
def around(name: str, bent: bool = True) -> tuple[nn.Module, tuple[int, ...], tuple[str, ...]]:
    """The network of a case, in float64 and eval mode, the shape of its input, and the operations that it shows."""
    torch.manual_seed(0)
    operations, shape, operation = _made()[name]
    model = Around(shape, operation, bent)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 1.5)
    return model.double().eval(), shape, operations


NAMES = tuple(_made())
