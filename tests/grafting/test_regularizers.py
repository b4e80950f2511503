"""Regularizers and the intervals they train on."""

import math

import pytest
import torch
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.attack.ball import bounds
from lingraft.grafting import FineTuning, fine_tuning_defaults
from lingraft.grafting.regularizers import ReluStability, WeightNorm, layer_weights, prune_small_weights
from lingraft.model import zoo
from lingraft.model.surgery import prepared, shapes
from lingraft.solver.intervals import interval_bounds
from lingraft.solver.network import Network
from lingraft.training.differentiable import site_intervals

EPS = 0.05


def some_grafted(model: nn.Module, shape: tuple[int, ...]):
    torch.manual_seed(3)
    mask = {site.name: torch.rand(site.shape) < 0.4 for site in lingraft.sites(model, shape)}
    return lingraft.graft(model, mask, slope=-0.3, intercept=0.1)


@pytest.mark.parametrize("name", ["functional", "resnet", "cnn-b", "resnet-4b", "sigmoid-cnn", "digits-cnn"])
def test_intervals_are_those_of_the_verifier(own, name):
    torch.manual_seed(0)
    model = own(name) if name in ("functional", "resnet") else zoo.build(name).eval()
    shape = (1, 4, 4) if name in ("functional", "resnet") else zoo.MODELS[name].input_shape
    grafted = some_grafted(model, shape)
    lower, upper = bounds(torch.rand(2, *shape), EPS)
    found = site_intervals(grafted, lower, upper)
    network = Network.from_module(grafted, shape)
    expected = interval_bounds(network, lower.double(), upper.double())
    assert [network.nodes[i].name for i in expected] == list(found)
    for (low, high), interval in zip(expected.values(), found.values(), strict=True):
        torch.testing.assert_close(interval.lower.double(), network.outside(low), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(interval.upper.double(), network.outside(high), atol=1e-4, rtol=1e-4)


def test_intervals_of_leaky_relu_and_pooling_hold_what_random_images_give(own):
    grafted = some_grafted(own("leaky"), (1, 4, 4))
    lower, upper = bounds(torch.rand(1, 1, 4, 4), EPS)
    found = site_intervals(grafted, lower, upper)
    inside = lower + (upper - lower) * torch.rand(200, 1, 4, 4)
    pre = {}
    for name in found:
        grafted.get_submodule(name).register_forward_pre_hook(lambda _m, args, name=name: pre.update({name: args[0]}))
    grafted(inside)
    for name, (low, high) in found.items():
        assert (pre[name] >= low - 1e-5).all()
        assert (pre[name] <= high + 1e-5).all()


def test_stability_is_the_sum_over_neurons_that_are_not_grafted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3))
    mask = torch.tensor([True, False, False, True, False])
    grafted = lingraft.graft(model, {"2": mask})
    images = torch.rand(4, 1, 4, 4)
    value, figures = ReluStability(EPS)(grafted, images, torch.zeros(4), torch.Generator())
    total, unstable = 0.0, 0
    for image in images.double():
        low, high = (edge.flatten() for edge in bounds(image, EPS))
        weight, bias = model[1].weight.detach().double(), model[1].bias.detach().double()
        for i in (1, 2, 4):
            ends = torch.stack([weight[i] * low, weight[i] * high])
            l, u = (float(e.sum() + bias[i]) for e in (ends.amin(0), ends.amax(0)))
            total -= math.tanh(1 + l * u)
            unstable += l < 0 < u
    assert float(value.detach()) == pytest.approx(total / 4, abs=1e-5)
    assert float(figures["unstable"]) == pytest.approx(unstable / 20)


def test_descending_on_stability_makes_neurons_stable():
    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    grafted = prepared(model, shapes(lingraft.sites(model, (1, 8, 8))))
    images = torch.rand(16, 1, 8, 8)
    optimizer = torch.optim.SGD(grafted.parameters(), lr=1e-4)
    shares = []
    for _ in range(30):
        value, figures = ReluStability(0.1)(grafted, images, torch.zeros(16), torch.Generator())
        shares.append(float(figures["unstable"]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert shares[-1] < 0.7 * shares[0]


def test_l1_sums_weights_but_no_biases_and_no_lines(own):
    model = own("leaky")
    grafted = some_grafted(model, (1, 4, 4))
    expected = sum(float(w.detach().abs().sum()) for w in (model.conv.weight, model.hidden.weight, model.last.weight))
    _, figures = WeightNorm()(grafted, torch.zeros(1), torch.zeros(1), torch.Generator())
    assert float(figures["l1"]) == pytest.approx(expected, rel=1e-6)
    assert set(layer_weights(grafted)) == {"conv.weight", "hidden.weight", "last.weight"}


def test_small_weights_stay_zero_while_training(own):
    model = some_grafted(own("leaky"), (1, 4, 4)).train()
    small = {name: weight.detach().abs() < 0.1 for name, weight in layer_weights(model).items()}
    count = prune_small_weights(model, 0.1)
    assert count == sum(int(mask.sum()) for mask in small.values()) > 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(4, 1, 4, 4)).square().sum().backward()
        optimizer.step()
    for name, weight in layer_weights(model).items():
        assert not weight[small[name]].any()
        assert weight[~small[name]].all()


def test_bad_input_is_refused(own):
    with pytest.raises(LingraftError, match=r"lingraft\.graft"):
        ReluStability(EPS)(own("leaky"), torch.rand(1, 1, 4, 4), torch.zeros(1), torch.Generator())
    with pytest.raises(LingraftError, match="above 0"):
        prune_small_weights(own("leaky"), 0.0)
    with pytest.raises(LingraftError, match=r"unknown regularizer 'stabilty'.*'stability'"):
        FineTuning(fine_tuning_defaults(EPS), regularize=("stabilty",))
    with pytest.raises(LingraftError, match="frozen"):
        FineTuning(fine_tuning_defaults(EPS), freeze_weights=True, regularize=("l1",))
    odd = nn.Sequential(nn.Flatten(), nn.LocalResponseNorm(2), nn.ReLU())
    grafted = prepared(odd, {"2": (16,)})
    with pytest.raises(LingraftError, match=r"layer '1' \(LocalResponseNorm\)"):
        ReluStability(EPS)(grafted, torch.rand(1, 1, 4, 4), torch.zeros(1), torch.Generator())
