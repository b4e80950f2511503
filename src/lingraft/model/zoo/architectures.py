"""One function an architecture: (channels, height, width, classes) → the layers after normalization.

Those with a `divisor` can be built narrower: every hidden layer, convolution or dense, has its channels or units
divided by it and all else stays the same, so there are about 1/divisor of the neurons. Halved ones are a control for
grafting: is a network that was small from the start as good as one that grafting has left half non-linear?
"""

from torch import nn

from lingraft.model.zoo.layers import ResidualBlock


def _halved(size: int) -> int:
    """Side after a 4×4 convolution of stride 2 and padding 1."""
    return size // 2


def _halved_up(size: int) -> int:
    """Side after a 3×3 convolution of stride 2 and padding 1."""
    return (size + 1) // 2


def conv_big(channels: int, height: int, width: int, classes: int, divisor: int = 1) -> list[nn.Module]:
    """ConvBig, 7 layers (Mirman et al. 2018; Singh et al. 2019): 62,464 ReLU neurons on 3×32×32."""
    first, second, dense = (size // divisor for size in (32, 64, 512))
    flat = second * _halved(_halved(height)) * _halved(_halved(width))
    return [
        nn.Conv2d(channels, first, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, first, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(second, second, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, dense),
        nn.ReLU(),
        nn.Linear(dense, dense),
        nn.ReLU(),
        nn.Linear(dense, classes),
    ]


def conv_huge(channels: int, height: int, width: int, classes: int, batch_norm: bool = False) -> list[nn.Module]:
    """ConvHuge, 7 layers, wider (the paper, Section 5): 17,190,602 parameters and 229,888 ReLU neurons on 3×32×32.

    The authors' code trains it with batch norm before every activation, which the paper's count leaves out.
    """
    flat = 128 * _halved_up(height) * _halved_up(width)
    layers: list[nn.Module] = [
        nn.Conv2d(channels, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    ]
    return _normalized(layers) if batch_norm else layers


def _normalized(layers: list[nn.Module]) -> list[nn.Module]:
    """Batch norm behind every layer that an activation follows."""
    found = []
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        found.append(layer)
        if isinstance(following, nn.ReLU):
            if isinstance(layer, nn.Conv2d):
                found.append(nn.BatchNorm2d(layer.out_channels))
            if isinstance(layer, nn.Linear):
                found.append(nn.BatchNorm1d(layer.out_features))
    return found


def cnn_b(channels: int, height: int, width: int, classes: int, divisor: int = 1) -> list[nn.Module]:
    """CNN-B, 4 layers (Dathathri et al. 2020): 16,634 ReLU neurons on 3×32×32."""
    first, second, dense = (size // divisor for size in (32, 128, 250))
    flat = second * _halved(_halved(height)) * _halved(_halved(width))
    return [
        nn.ZeroPad2d((1, 2, 1, 2)),
        nn.Conv2d(channels, first, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(first, second, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, dense),
        nn.ReLU(),
        nn.Linear(dense, classes),
    ]


def resnet_4b(channels: int, height: int, width: int, classes: int) -> list[nn.Module]:
    """ResNet-4B (Bak et al. 2021, VNN-COMP 2021): 14,436 ReLU neurons on 3×32×32, no batch norm."""
    flat = 32 * _halved_up(_halved_up(_halved_up(height))) * _halved_up(_halved_up(_halved_up(width)))
    return [
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        ResidualBlock(16, 32, stride=2),
        ResidualBlock(32, 32, stride=1),
        ResidualBlock(32, 32, stride=2),
        ResidualBlock(32, 32, stride=1),
        nn.Flatten(),
        nn.Linear(flat, 100),
        nn.ReLU(),
        nn.Linear(100, classes),
    ]


def smooth_cnn(
    channels: int, height: int, width: int, classes: int, activation: type[nn.Module] = nn.Sigmoid
) -> list[nn.Module]:
    """A 3-layer CNN of sigmoid or tanh (the paper, Appendix, "non-ReLU networks"; it gives no sizes, so ours)."""
    flat = 32 * _halved(_halved(height)) * _halved(_halved(width))
    hidden = [nn.Conv2d(channels, 16, 4, stride=2, padding=1), nn.Conv2d(16, 32, 4, stride=2, padding=1)]
    # With torch's weights a sigmoid network stands still for epochs: sigmoid'(0) = 1/4 shrinks what differs between
    # images fourfold at each layer. Xavier's weights over that slope keep it.
    slope = 0.25 if activation is nn.Sigmoid else 1.0
    for convolution in hidden:
        nn.init.xavier_normal_(convolution.weight, gain=1 / slope)
    return [hidden[0], activation(), hidden[1], activation(), nn.Flatten(), nn.Linear(flat, classes)]


def digits_cnn(channels: int, height: int, width: int, classes: int, divisor: int = 1) -> list[nn.Module]:
    """A small CNN for 8×8 digits: 1,600 ReLU neurons, trained in seconds."""
    first, second, dense = (size // divisor for size in (16, 32, 64))
    flat = second * _halved(height) * _halved(width)
    return [
        nn.Conv2d(channels, first, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, second, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, dense),
        nn.ReLU(),
        nn.Linear(dense, classes),
    ]
