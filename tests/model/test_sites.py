"""Finding the activation calls of a model."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lingraft
from lingraft.model import zoo
from lingraft.model.activations.relu import RELU, leaky_relu
from lingraft.model.activations.sigmoid import SIGMOID, TANH
from lingraft.model.sites import Site
from lingraft.model.surgery import graft

SMOOTH = {"sigmoid-cnn": "sigmoid", "tanh-cnn": "tanh"}


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if not name.startswith("conv-huge")])
def test_networks_of_the_zoo(name):
    model = zoo.build(name)
    shape = zoo.MODELS[name].input_shape
    found = lingraft.sites(model, shape)
    assert sum(site.neurons for site in found) == zoo.count_neurons(name)
    assert all(dict(model.named_modules())[site.name] for site in found)
    assert {site.kind for site in found} == {SMOOTH.get(name, "relu")}


def test_functions_and_methods_are_sites(own):
    assert lingraft.sites(own("functional"), (1, 4, 4)) == [
        Site("relu", RELU, (12,)),
        Site("relu_1", RELU, (10,)),
        Site("tanh", TANH, (8,)),
        Site("sigmoid", SIGMOID, (8,)),
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
        Site("leaky", leaky_relu(0.2), (6, 4, 4)),
        Site("leaky_relu", leaky_relu(0.05), (10,)),
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
