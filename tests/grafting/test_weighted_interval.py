"""Weighted intervals: the widths of unstable neurons, by the sizes of the weights behind them."""

import torch
from torch import nn

import lingraft
from lingraft.data import ImageSet
from lingraft.grafting.weighted_interval import WeightedInterval
from lingraft.solver.methods import METHODS
from lingraft.solver.network import Network

EPS = 0.1


def test_by_hand_on_a_network_of_linear_layers(own_images: ImageSet) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    few = own_images.take(4)
    found = WeightedInterval(EPS).score(model, few)
    network = Network.from_module(model, (1, 4, 4))
    for i, layer in zip(network.sites, (model[3], model[5]), strict=True):
        expected = torch.zeros(network.nodes[i].shape, dtype=torch.float64)
        for image in few.images:
            bounds = METHODS["crown"](network, (image - EPS).clamp(min=0)[None], (image + EPS).clamp(max=1)[None])
            lower, upper = (end[0] for end in bounds[i])
            expected += torch.where((lower < 0) & (upper > 0), upper - lower, 0.0)
        expected *= layer.weight.detach().double().abs().sum(0)
        assert float(expected.max()) > 0
        torch.testing.assert_close(found[network.nodes[i].name], expected, rtol=1e-5, atol=1e-7)


def test_grafted_and_stable_neurons_have_none(own_model: nn.Module, own_images: ImageSet) -> None:
    few = own_images.take(3)
    before = WeightedInterval(EPS, "intervals").score(own_model, few)
    mask = {name: values > values.median() for name, values in before.items()}
    after = WeightedInterval(EPS, "intervals").score(lingraft.graft(own_model, mask), few)
    assert list(after) == list(before)
    for name, values in after.items():
        assert (values[mask[name]] == 0).all()
        assert (values >= 0).all()
    assert sum(float(values.sum()) for values in WeightedInterval(0.0).score(own_model, few).values()) == 0
