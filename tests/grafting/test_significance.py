"""How much a neuron matters."""

import pytest
import torch
from torch import nn

import lingraft
from lingraft.data import ImageSet
from lingraft.grafting import (
    ActivationGradient,
    Instability,
    RandomSignificance,
    unstable_ratio,
)

EPS = 0.1


def test_adversarial_gradients_differ_and_repeat(small, own_images):
    clean = ActivationGradient().score(small, own_images)
    for scorer in (ActivationGradient(EPS), ActivationGradient(EPS, steps=3)):
        first, again = scorer.score(small, own_images), scorer.score(small, own_images)
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], clean[name]) for name in first)


def test_a_neuron_without_effect_has_no_significance(small, own_images):
    with torch.no_grad():
        small[5].weight[:, 2] = 0
    assert ActivationGradient().score(small, own_images)["4"][2] == 0


@pytest.mark.slow
@pytest.mark.parametrize("activation", [nn.Sigmoid(), nn.Tanh()])
def test_smooth_neurons_rank_by_how_far_from_linear_they_are(activation: nn.Module, own_images: ImageSet):
    torch.manual_seed(0)
    layer = nn.Linear(16, 4)
    with torch.no_grad():
        layer.weight.mul_(torch.tensor([[0.0], [1.0], [20.0], [20.0]]))
        layer.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 500.0]))  # constant, nearly linear, steep, saturated
    model = nn.Sequential(nn.Flatten(), layer, activation, nn.Linear(4, 3)).eval()
    scores = Instability(EPS).score(model, own_images)["2"]
    assert scores[0] == 0
    assert scores[3] < 1e-3 < scores[1] < scores[2] < len(own_images)
    steep = lingraft.graft(model, {"2": torch.tensor([False, False, True, False])})
    assert Instability(EPS).score(steep, own_images)["2"][2] == 0
    assert 0 <= unstable_ratio(steep, own_images, EPS) < unstable_ratio(model, own_images, EPS) <= 0.5


def test_random_scores_depend_on_the_seed(small, own_images):
    first, other = (RandomSignificance(seed).score(small, own_images) for seed in (0, 1))
    assert not torch.equal(first["2"], other["2"])
