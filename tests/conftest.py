"""Shared by all tests: few threads, and the data and problems that only some machines have."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import is_hypothesis_test, settings
from own_models import OWN_MODELS, OWN_SHAPE, make_own
from torch import nn

from lingraft.data import ImageSet, load
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run

torch.set_num_threads(1)

# The same examples every time, so that what fails fails again; `make explore` draws new ones.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

#: Folders of which `--quick` takes nothing: other programs, servers, browsers, campaigns.
NOT_QUICK = {"docs", "examples", "faults", "fuzz", "ray"}
#: Fixtures whose tests it leaves out: real data, public problems, a browser, runs that are trained for the report.
NOT_QUICK_FIXTURES = {"data_folder", "problems_folder", "chromium", "runs"}
#: Random examples of each property with `--quick`, and parameter sets of each test.
QUICK_EXAMPLES, QUICK_PARAMETERS = 3, 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="what is worth running after every edit: nothing slow, few examples of each",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    taken = Counter[str]()
    kept, left_out = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        enough = _is_slow(item) or taken[test] == QUICK_PARAMETERS
        taken[test] += not enough
        (left_out if enough else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
    for item in items:
        test = getattr(item, "function", None)
        if is_hypothesis_test(test):  # a second @settings is refused, so where the first one put it
            given = test._hypothesis_internal_use_settings
            few = settings(given, max_examples=min(given.max_examples, QUICK_EXAMPLES))
            test._hypothesis_internal_use_settings = few


def _is_slow(item: pytest.Item) -> bool:
    folders, fixtures = set(item.path.parts), set(getattr(item, "fixturenames", ()))
    return bool(item.get_closest_marker("slow") or NOT_QUICK & folders or NOT_QUICK_FIXTURES & fixtures)


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


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a network of the zoo, normalization included, that knows most digits.

    At its ε of 0.1 there is every verdict among the first images. All tests share it: write to a copy.
    """
    torch.manual_seed(0)
    normalization = {"mean": [0.3], "std": [0.4]}
    model, data = zoo.build("digits-cnn", **normalization), load("digits", "train").take(400)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(data.pixels()), data.labels).backward()
        optimizer.step()
    run = Run(tmp_path_factory.mktemp("trained") / "digits")
    run.write_description(
        ModelDescription(
            architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.1, **normalization
        )
    )
    run.save_weights(model)
    return run.path


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
