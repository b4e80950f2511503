"""Open harm: only what stays unproven counts, and it is no more than what the root says."""

import pytest
import torch
from torch import nn

import lingraft
from lingraft.data import ImageSet
from lingraft.grafting.harm import Harm
from lingraft.grafting.open_harm import OpenHarm

EPS = 0.1


def total(scores: dict[str, torch.Tensor]) -> float:
    return sum(float(values.sum()) for values in scores.values())


def test_it_costs_less_than_at_the_root_and_has_the_same_sites(own_model: nn.Module, own_images: ImageSet) -> None:
    few = own_images.take(3)
    root, found = Harm(EPS).score(own_model, few), OpenHarm(EPS).score(own_model, few)
    assert {name: values.shape for name, values in found.items()} == {n: v.shape for n, v in root.items()}
    assert all((values >= 0).all() for values in found.values())
    assert 0 < total(found) < total(root)


def test_images_that_are_proven_cost_nothing(own_model: nn.Module, own_images: ImageSet) -> None:
    few = own_images.take(4)
    right = own_model(few.pixels()).argmax(1)
    assert total(OpenHarm(1e-5).score(own_model, ImageSet(few.images, right))) == 0


def test_by_hand_on_one_neuron() -> None:
    """One ReLU on one pixel: z = x − 0.5 in [−0.1, 0.1], margin 0.01 − relu(z); q = −1, t = 0.1·0.1/0.2."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).double().eval()
    with torch.no_grad():
        model[1].weight.fill_(1.0), model[1].bias.fill_(-0.5)
        model[3].weight.copy_(torch.tensor([[0.0], [1.0]])), model[3].bias.copy_(torch.tensor([0.01, 0.0]))
    image = ImageSet(torch.full((1, 1, 1, 1), 0.5), torch.tensor([0]))
    (cost,) = OpenHarm(0.1).score(model, image).values()
    (root,) = Harm(0.1).score(model, image).values()
    assert float(root) == pytest.approx(0.1 * 0.1 / 0.2)
    # a counterexample has relu(z) ≥ 0.01: by the chord (z + 0.1) / 2 that is z ≥ −0.08 at best
    assert 0.08 * 0.1 / 0.18 <= float(cost) <= 0.1 * 0.1 / 0.2 + 1e-4


def test_grafted_neurons_cost_nothing(own_model: nn.Module, own_images: ImageSet) -> None:
    few = own_images.take(2)
    mask = {site.name: torch.ones(site.shape, dtype=torch.bool) for site in lingraft.sites(own_model, (1, 4, 4))}
    assert total(OpenHarm(EPS).score(lingraft.graft(own_model, mask), few)) == 0
