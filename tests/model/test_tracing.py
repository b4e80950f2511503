"""What tracing cannot follow is named."""

import operator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lingraft
from lingraft import LingraftError
from lingraft.model.tracing import trace


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Softsign()), r"layer '1' \(Softsign\).*relu"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softshrink()), r"layer '1' \(Softshrink\)"),
        (nn.Sequential(nn.ReLU(), Branching()), r"cannot trace 1 \(Branching\)"),
        (nn.Sequential(nn.Linear(4, 4), nn.Flatten()), "no activation"),
    ],
)
def test_what_is_not_supported_is_named(model, message):
    with pytest.raises(LingraftError, match=message):
        lingraft.sites(model, (4,))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (F.softsign, "softsign.*'softsign'"),
        (lambda x: x.clamp(min=x.shape[0]), "min must be a number"),
        (lambda x: x.clamp(min=2, max=1), "between 2.0 and 1.0 is a constant"),
        (lambda x: x.clamp(min=torch.zeros(4)), "min must be a number"),
        (lambda x: F.elu(x, -1.0), "alpha=-1.0 is not supported"),
        (lambda x: F.softplus(x, 1, 3), "threshold=3.0 has a step"),
        (lambda x: F.relu(x[:, :0]), "'relu' has no neurons"),
        (lambda x: F.relu(x.flatten()), "first axis must be the batch"),
        (lambda x: F.leaky_relu(x, x.shape[0]), "negative_slope must be a number"),
    ],
)
def test_functions_that_are_not_supported_are_named(function, message):
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    with pytest.raises(LingraftError, match=message):
        lingraft.sites(Model(), (4,))


def test_functions_of_parameters_are_no_sites():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(operator.mul(x, torch.exp(self.scale)))

    assert [site.name for site in lingraft.sites(Scaled(), (4,))] == ["relu"]


def test_arithmetic_with_sizes_is_allowed():
    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x / x.shape[1] ** 2).reshape(x.size(0), abs(x.size(1)))

    assert [site.name for site in lingraft.sites(Sized(), (4,))] == ["relu"]


def test_two_inputs_and_wrong_image_shapes_are_refused(own, capsys):
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.relu(x + y)

    with pytest.raises(LingraftError, match=r"2 inputs \(x, y\)"):
        lingraft.sites(Two(), (4,))
    with pytest.raises(LingraftError, match=r"images of shape \(3, 4, 4\)"):
        lingraft.sites(own("leaky"), (3, 4, 4))
    assert capsys.readouterr().err == "", "the error alone, without a traceback of PyTorch"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.pow(x, 2),
        lambda x: torch.pow(input=x, exponent=2),
        lambda x: torch.where(x > 0, x, 0),
        lambda x: torch.remainder(x, 2),
        lambda x: torch.float_power(x, 2),
    ],
)
def test_functions_that_torch_also_has_for_a_number_and_a_tensor_are_recorded(function):
    """They crashed the process."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    x = torch.linspace(-3, 3, 8).view(2, 4)
    before = torch.pow
    assert torch.equal(trace(Model())(x), function(x))
    assert torch.pow is before
