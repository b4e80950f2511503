"""Building a network of the zoo by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from lingraft.errors import LingraftError
from lingraft.model.zoo import architectures
from lingraft.model.zoo.layers import Normalize
from lingraft.names import lookup

ACTIVATIONS = (nn.ReLU, nn.Sigmoid, nn.Tanh)


@dataclass(frozen=True)
class ModelSpec:
    """An architecture: its layers, what it is, where it comes from, and the input shape it was published for."""

    layers: Callable[[int, int, int, int], list[nn.Module]]
    title: str
    source: str
    input_shape: tuple[int, int, int] = (3, 32, 32)


MODELS: dict[str, ModelSpec] = {
    "cnn-b": ModelSpec(architectures.cnn_b, "CNN-B", "Dathathri et al. 2020"),
    "conv-big": ModelSpec(architectures.conv_big, "ConvBig", "Mirman et al. 2018"),
    "resnet-4b": ModelSpec(architectures.resnet_4b, "ResNet-4B", "Bak et al. 2021"),
    "conv-huge": ModelSpec(architectures.conv_huge, "ConvHuge", "Chen et al. 2022"),
    "conv-huge-bn": ModelSpec(
        partial(architectures.conv_huge, batch_norm=True), "ConvHuge with batch norm", "Chen et al. 2022, their code"
    ),
    "sigmoid-cnn": ModelSpec(architectures.smooth_cnn, "sigmoid CNN", "after Chen et al. 2022"),
    "tanh-cnn": ModelSpec(partial(architectures.smooth_cnn, activation=nn.Tanh), "tanh CNN", "after Chen et al. 2022"),
    "digits-cnn": ModelSpec(architectures.digits_cnn, "digits CNN", "lingraft", (1, 8, 8)),
    # controls: plain networks with as many non-linear neurons as grafting a half leaves
    "cnn-b-half": ModelSpec(partial(architectures.cnn_b, divisor=2), "CNN-B, half width", "control"),
    "conv-big-half": ModelSpec(partial(architectures.conv_big, divisor=2), "ConvBig, half width", "control"),
    "digits-cnn-half": ModelSpec(
        partial(architectures.digits_cnn, divisor=2), "digits CNN, half width", "control", (1, 8, 8)
    ),
}


def build(
    name: str,
    input_shape: Sequence[int] | None = None,
    classes: int = 10,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Sequential:
    """The named network, weights initialized from torch's random state, normalization as its first layer.

    `input_shape` is (channels, height, width), by default the published one; `mean` and `std` are per channel,
    by default 0 and 1. Takes images of shape (N, *input_shape) in [0, 1] and gives logits (N, classes).
    """
    spec = lookup("model", name, MODELS)
    shape = tuple(input_shape or spec.input_shape)
    if len(shape) != 3 or min(shape) < 1 or shape[1] % 4 or shape[2] % 4:
        raise LingraftError(
            f"model {name!r} takes images (channels, height, width) with sides divisible by 4, not {shape}."
        )
    if classes < 2:
        raise LingraftError(f"a classifier needs at least 2 classes, not {classes}.")
    mean = [0.0] * shape[0] if mean is None else mean
    std = [1.0] * shape[0] if std is None else std
    if len(mean) != shape[0] or len(std) != shape[0] or min(std) <= 0:
        raise LingraftError(f"mean and std must give one number for each of {shape[0]} channels, std above 0.")
    return nn.Sequential(Normalize(mean, std), *spec.layers(*shape, classes))


def count_parameters(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in model.parameters())


def count_neurons(name: str, input_shape: Sequence[int] | None = None) -> int:
    """Number of activation neurons for one image."""
    total = 0

    def add(module: nn.Module, args: object, output: torch.Tensor) -> None:
        nonlocal total
        total += output.numel()

    with torch.device("meta"):
        model = build(name, input_shape).eval()  # batch norm wants more than one image to train with
        for module in model.modules():
            if isinstance(module, ACTIVATIONS):
                module.register_forward_hook(add)
        model(torch.empty(1, *(input_shape or MODELS[name].input_shape)))
    return total
