"""Networks in the styles people write them: nothing of the zoo, for images of shape (1, 4, 4) and three classes."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FunctionalMLP(nn.Module):
    """Activations as functions and methods, one of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 12)
        self.second = nn.Linear(12, 10)
        self.third = nn.Linear(10, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x.flatten(1)))
        x = self.second(x).relu()
        x = torch.tanh(self.third(x))
        return self.last(torch.sigmoid(x))


class BasicBlock(nn.Module):
    """The basic block of torchvision's ResNets: batch norm, a shortcut, and one in-place ReLU object called twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """Stem, two basic blocks, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.layer = nn.Sequential(BasicBlock(4), BasicBlock(4))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.layer(self.stem(x))), 1))


class LeakyCNN(nn.Module):
    """Leaky ReLU as a module and as a function, with max pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.leaky = nn.LeakyReLU(0.2)
        self.pool = nn.MaxPool2d(2)
        self.hidden = nn.Linear(24, 10)
        self.last = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.leaky(self.conv(x))).flatten(1)
        return self.last(F.leaky_relu(self.hidden(x), 0.05))


OWN_MODELS = {"functional": FunctionalMLP, "resnet": ResNet, "leaky": LeakyCNN}
OWN_SHAPE = (1, 4, 4)


def make_own(name: str) -> nn.Module:
    """The network of this name, in eval mode."""
    torch.manual_seed(0)
    model = OWN_MODELS[name]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: not the identity
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, -1, 1)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return model.eval()
