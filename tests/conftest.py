"""Shared by all tests: few threads, and the data and problems that only some machines have."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from own_models import OWN_MODELS, OWN_SHAPE, make_own
from torch import nn

from lingraft.data import ImageSet, load

torch.set_num_threads(1)


def _folder(variable: str, what: str) -> Path:
    value = os.environ.get(variable)
    if not value or not Path(value).is_dir():
        pytest.skip(f"{variable} does not point at {what}")
    return Path(value)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder with MNIST, CIFAR-10 and SVHN in their official formats."""
    return _folder("LINGRAFT_DATA", "a folder with the unpacked data sets")


@pytest.fixture(scope="session")
def problems_folder() -> Path:
    """Folder with public verification problems."""
    return _folder("LINGRAFT_PROBLEMS", "a folder with verification problems")


@pytest.fixture(scope="session")
def digits_net() -> nn.Module:
    """A small convolutional network trained briefly on digits with one-step attacks; in eval mode, do not change it."""
    data = load("digits", "train").take(640)
    pixels, labels = data.pixels(), data.labels
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 24),
        nn.ReLU(),
        nn.Linear(24, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(8):
        for index in torch.randperm(len(pixels), generator=generator).split(64):
            images = pixels[index].requires_grad_()
            (gradient,) = torch.autograd.grad(F.cross_entropy(model(images), labels[index]), images)
            attacked = (images.detach() + 0.05 * gradient.sign()).clamp(0, 1)
            optimizer.zero_grad()
            F.cross_entropy(model(attacked), labels[index]).backward()
            optimizer.step()
    return model.eval()


@pytest.fixture(params=OWN_MODELS)
def own_model(request: pytest.FixtureRequest) -> nn.Module:
    """A network that is not of the zoo, in eval mode, for images of shape (1, 4, 4)."""
    return make_own(request.param)


@pytest.fixture
def own() -> Callable[[str], nn.Module]:
    """make(name) → one of the networks of own_models.py."""
    return make_own


@pytest.fixture
def own_images() -> ImageSet:
    """Twenty images for them."""
    generator = torch.Generator().manual_seed(1)
    return ImageSet(torch.rand(20, *OWN_SHAPE, generator=generator), torch.arange(20) % 3)
