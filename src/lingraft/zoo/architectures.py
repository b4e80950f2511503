"""One function an architecture: (channels, height, width, classes) → the layers after normalization."""

from torch import nn

from lingraft.zoo.layers import ResidualBlock


def _halved(size: int) -> int:
    """Side after a 4×4 convolution of stride 2 and padding 1."""
    return size // 2


def _halved_up(size: int) -> int:
    """Side after a 3×3 convolution of stride 2 and padding 1."""
    return (size + 1) // 2


def conv_big(channels: int, height: int, width: int, classes: int) -> list[nn.Module]:
    """ConvBig, 7 layers (Mirman et al. 2018; Singh et al. 2019): 62,464 ReLU neurons on 3×32×32."""
    flat = 64 * _halved(_halved(height)) * _halved(_halved(width))
    return [
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    ]


def conv_huge(channels: int, height: int, width: int, classes: int) -> list[nn.Module]:
    """ConvHuge, 7 layers, wider (the paper, Section 5): 17,190,602 parameters and 229,888 ReLU neurons on 3×32×32."""
    flat = 128 * _halved_up(height) * _halved_up(width)
    return [
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


def cnn_b(channels: int, height: int, width: int, classes: int) -> list[nn.Module]:
    """CNN-B, 4 layers (Dathathri et al. 2020): 16,634 ReLU neurons on 3×32×32."""
    flat = 128 * _halved(_halved(height)) * _halved(_halved(width))
    return [
        nn.ZeroPad2d((1, 2, 1, 2)),
        nn.Conv2d(channels, 32, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 128, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, 250),
        nn.ReLU(),
        nn.Linear(250, classes),
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


def sigmoid_cnn(channels: int, height: int, width: int, classes: int) -> list[nn.Module]:
    """A 3-layer sigmoid CNN (the paper, Appendix, "non-ReLU networks"; it gives no sizes, these are ours)."""
    flat = 32 * _halved(_halved(height)) * _halved(_halved(width))
    return [
        nn.Conv2d(channels, 16, 4, stride=2, padding=1),
        nn.Sigmoid(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(flat, classes),
    ]


def digits_cnn(channels: int, height: int, width: int, classes: int) -> list[nn.Module]:
    """A small CNN for 8×8 digits: 1,600 ReLU neurons, trained in seconds."""
    flat = 32 * _halved(height) * _halved(width)
    return [
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    ]
