"""The network as the verifier sees it: its own values, and no model that must not be verified."""

import pytest
import random_networks as nets
import torch
from torch import nn

from lingraft import LingraftError
from lingraft.solver.network import Network


def test_values_of_sites_are_the_models() -> None:
    for seed in range(10):
        model, shape = nets.conv(seed, "residual")
        images = nets.points(nets.box(shape, seed, 0.5), seed, 4)
        network = Network.from_module(model, shape)
        values = network.values(images)
        seen = nets.preactivations(model, images)
        for i in network.sites:
            node = network.nodes[i]
            if node.public:  # type: ignore[attr-defined]
                torch.testing.assert_close(network.outside(values[node.inputs[0]]), seen[node.name])


def test_models_that_must_not_be_verified() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.ReLU())
    with pytest.raises(LingraftError, match="training mode"):
        Network.from_module(model, (4,))
    model.eval()
    model[1].train()
    with pytest.raises(LingraftError, match="training mode"):
        Network.from_module(model, (4,))
    model.eval()
    with torch.no_grad():
        model[0].weight[1, 2] = torch.nan
    with pytest.raises(LingraftError, match=r"0\.weight"):
        Network.from_module(model, (4,))
