"""Finding the activation calls of a model."""

import operator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lingraft
from lingraft import LingraftError
from lingraft.model import zoo
from lingraft.model.sites import Site
from lingraft.model.surgery import graft

SMOOTH = {"sigmoid-cnn": "sigmoid", "tanh-cnn": "tanh"}


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if name != "conv-huge"])
def test_networks_of_the_zoo(name):
    model = zoo.build(name)
    shape = zoo.MODELS[name].input_shape
    found = lingraft.sites(model, shape)
    assert sum(site.neurons for site in found) == zoo.count_neurons(name)
    assert all(dict(model.named_modules())[site.name] for site in found)
    assert {site.kind for site in found} == {SMOOTH.get(name, "relu")}


def test_functions_and_methods_are_sites(own):
    assert lingraft.sites(own("functional"), (1, 4, 4)) == [
        Site("relu", (12,), "relu"),
        Site("relu_1", (10,), "relu"),
        Site("tanh", (8,), "tanh"),
        Site("sigmoid", (8,), "sigmoid"),
    ]


def test_each_call_of_a_reused_module_is_a_site(own):
    found = lingraft.sites(own("resnet"), (1, 4, 4))
    assert [site.name for site in found] == [
        "stem.2",
        "layer.0.relu",
        "layer.0.relu_2",
        "layer.1.relu",
        "layer.1.relu_2",
    ]
    assert {site.shape for site in found} == {(4, 4, 4)}


def test_leaky_relu_as_module_and_function(own):
    assert lingraft.sites(own("leaky"), (1, 4, 4)) == [
        Site("leaky", (6, 4, 4), "leaky_relu"),
        Site("leaky_relu", (10,), "leaky_relu"),
    ]


def test_names_stay_the_same_after_grafting(own_model):
    found = lingraft.sites(own_model, (1, 4, 4))
    some = found[1]  # graft one site only, then another
    once = graft(own_model, {some.name: torch.ones(some.shape, dtype=torch.bool)})
    assert lingraft.sites(once, (1, 4, 4)) == found
    twice = graft(once, {found[0].name: torch.ones(found[0].shape, dtype=torch.bool)})
    assert lingraft.sites(twice, (1, 4, 4)) == found


def test_a_function_does_not_take_the_name_of_a_module():
    class Confusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.Linear(4, 4)
            self.relu_1 = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.relu_1(F.relu(self.relu(F.relu(x))))

    model = Confusing()
    found = lingraft.sites(model, (4,))
    assert len({site.name for site in found}) == 3
    x = torch.randn(3, 4)
    masks = {site.name: torch.zeros(4, dtype=torch.bool) for site in found}
    grafted = graft(model, masks)
    assert torch.equal(grafted(x), model(x))
    assert lingraft.sites(grafted, (4,)) == found


def test_training_statistics_and_mode_are_left_alone(own):
    model = own("resnet").train()
    model.layer[0].bn1.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    lingraft.sites(model, (1, 4, 4))
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.GELU()), r"layer '1' \(GELU\).*relu"),
        (nn.Sequential(nn.Linear(4, 4), nn.Hardtanh()), r"layer '1' \(Hardtanh\)"),
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
        (F.gelu, "gelu.*'gelu'"),
        (lambda x: x.clamp(min=0), "clamp"),
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
