"""HYDRA learns which neurons matter."""

import torch

from lingraft.grafting import (
    ActivationMagnitude,
    Hydra,
)

EPS = 0.1


def test_hydra_learns_which_neurons_matter(small, own_images):
    with torch.no_grad():
        small[1].weight.copy_(small[1].weight.abs())  # all neurons of the first site are on
        small[1].bias.zero_()
        small[3].weight[:, :3] = 0  # the first three do not matter
        small[3].weight[:, 3:] *= 10
    scorer = Hydra(0.5, EPS, epochs=30)
    first, again = scorer.score(small, own_images), scorer.score(small, own_images)
    assert all(torch.equal(first[name], again[name]) for name in first)
    start = ActivationMagnitude().score(small, own_images)["2"]
    start = start / start.max()
    change = first["2"] - start
    assert change[:3].abs().max() < 1e-6  # no gradient reaches them
    assert change[3:].abs().min() > 1e-3
