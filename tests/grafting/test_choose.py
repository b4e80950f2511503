"""Scores of a whole network, and what is chosen by them."""

import pytest
import torch

import lingraft
from lingraft import LingraftError
from lingraft.grafting import (
    SIGNIFICANCES,
    GraftingConfig,
    Scores,
    score,
    select_ranked,
)

EPS = 0.1


@pytest.mark.parametrize("significance", SIGNIFICANCES)
def test_scores_are_the_same_on_every_run(own_model, own_images, significance):
    config = GraftingConfig(EPS, significance=significance, images=12, bound_images=7, seed=3)
    first, again = score(own_model, own_images, config), score(own_model, own_images, config)
    names = [site.name for site in lingraft.sites(own_model, (1, 4, 4))]
    assert list(first.significance) == list(first.instability) == names
    for name in names:
        assert torch.equal(first.significance[name], again.significance[name])
        assert torch.equal(first.instability[name], again.instability[name])
        assert first.significance[name].shape == first.instability[name].shape
    assert (first.facts["images"], first.facts["bound_images"]) == (12, 7)


def test_scoring_leaves_the_model_alone(own, own_images):
    model = own("resnet").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    score(model, own_images, GraftingConfig(EPS, significance="hydra"))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_ranks_within_a_site_graft_the_ratio_of_each():
    scores = Scores({"a": torch.arange(10.0), "b": torch.arange(100.0, 104.0)}, facts={})
    together, apart = (select_ranked(scores, 0.5, (0.0,), ranks) for ranks in ("network", "site"))
    assert [int(mask.sum()) for mask in together.values()] == [7, 0]
    assert [int(mask.sum()) for mask in apart.values()] == [5, 2]
    assert apart["b"].tolist() == [True, True, False, False]
    with pytest.raises(LingraftError, match="unknown ranks"):
        select_ranked(scores, 0.5, (0.0,), "layer")
