"""Harm: what the bounds of the margins would gain without the offset of a neuron's upper line."""

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.data import ImageSet
from lingraft.grafting import INSTABILITIES, GraftingConfig, Harm, score
from lingraft.grafting.harm import margins, per_significance, per_site
from lingraft.solver.bounds import bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.crown import lower_bound, pass_back, relaxed
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.rows import Rows

EPS = 0.1


def test_harm_is_what_each_offset_takes_from_the_bounds(small: nn.Sequential, own_images: ImageSet):
    few = own_images.take(4)
    network = Network.from_module(small, (1, 4, 4))
    expected = {i: torch.zeros(network.nodes[i].shape, dtype=torch.float64) for i in network.sites}
    for image, label in zip(few.images, few.labels.tolist(), strict=True):
        found = bound_sites(network, Region.ball(image, EPS), Budget())
        spec = margins(3, label)

        def bound(found=found, spec=spec) -> Tensor:
            rows, constant = pass_back(
                network, {len(network.nodes) - 1: Rows(spec)}, spec[:, 0] * 0, relaxed(found.lines)
            )
            return lower_bound(rows, constant, found.center, found.radius)

        full = bound()
        for i in network.sites:
            lines = found.lines[i]
            for j in range(lines.upper_intercept.numel()):
                less = lines.upper_intercept.clone()
                less[j] = 0
                found.lines[i] = lines._replace(upper_intercept=less)
                expected[i][j] += (bound() - full).sum()
            found.lines[i] = lines
    scores = Harm(EPS).score(small, few)
    assert sum(float(values.sum()) for values in scores.values()) > 0
    for i in network.sites:
        torch.testing.assert_close(scores[network.nodes[i].name], expected[i])


def test_grafted_neurons_do_no_harm(own_model: nn.Module, own_images: ImageSet):
    few = own_images.take(3)
    before = Harm(EPS).score(own_model, few)
    mask = {name: values > values.median() for name, values in before.items()}
    after = Harm(EPS).score(lingraft.graft(own_model, mask), few)
    assert list(after) == list(before)
    for name, values in after.items():
        assert (values[mask[name]] == 0).all()
        assert (values >= 0).all()
        assert torch.isfinite(values).all()


def test_relative_harm():
    harm = {"a": torch.tensor([0.0, 2.0, 4.0]), "b": torch.tensor([[0.0, 300.0]]), "c": torch.zeros(2)}
    relative = per_site(harm)
    assert [values.tolist() for values in relative.values()] == [[0, 1, 2], [[0, 2]], [0, 0]]
    significance = {"a": torch.tensor([1.0, 1.0, 4.0]), "b": torch.tensor([[0.0, 0.0]]), "c": torch.zeros(2)}
    worth = per_significance(harm, significance)
    assert worth["a"].tolist() == pytest.approx([0, 2, 1], rel=1e-4)
    assert worth["b"][0, 0] == 0
    assert 1e6 < worth["b"][0, 1] < torch.inf
    assert worth["c"].tolist() == [0, 0]


@pytest.mark.parametrize("instability", INSTABILITIES)
def test_every_instability_scores_every_neuron(own_model: nn.Module, own_images: ImageSet, instability: str):
    scores = score(own_model, own_images, GraftingConfig(EPS, instability=instability, images=10, bound_images=3))
    assert scores.facts["instability"] == instability
    assert scores.instability is not None
    assert {n: v.shape for n, v in scores.instability.items()} == {n: v.shape for n, v in scores.significance.items()}
    assert sum(float(values.sum()) for values in scores.instability.values()) > 0


def test_bounds_that_harm_has_no_use_for():
    with pytest.raises(LingraftError, match="crown or intervals"):
        GraftingConfig(EPS, instability="harm", bounds="alpha-crown")
    with pytest.raises(LingraftError, match="unknown instability 'hurt'"):
        GraftingConfig(EPS, instability="hurt")
