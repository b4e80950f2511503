"""Interval bounds hold everywhere and are exact where nothing is lost."""

from dataclasses import replace

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lingraft import LingraftError
from lingraft.solver.bounds import SiteBounds, bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.intervals import fan_in, interval_bounds, through_site
from lingraft.solver.network import Network
from lingraft.solver.nodes import Site
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes

SEEDS = st.integers(0, 10**6)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), st.floats(0, 2), st.booleans())
def test_every_value_lies_inside(seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, None, kind)
    if graft:
        model = nets.grafted(model, shape, seed)
    region = nets.box(shape, seed, eps)
    network = Network.from_module(model, shape)
    found = interval_bounds(network, region.lower[None], region.upper[None])
    values = network.values(nets.points(region, seed, 32, model))
    for i, (lower, upper) in found.items():
        z = values[network.nodes[i].inputs[0]]
        assert bool((z >= lower - 1e-9).all())
        assert bool((z <= upper + 1e-9).all())
    same = bound_sites(network, region, Budget(), "intervals")
    assert all(torch.equal(same.bounds[i][0], found[i][0][0]) for i in found)
    logits = values[-1]
    assert bool((logits >= same.logits[0] - 1e-9).all())
    assert bool((logits <= same.logits[1] + 1e-9).all())


def test_one_linear_layer_is_exact() -> None:
    layer = nn.Linear(3, 4).double()
    network = Network.from_module(nn.Sequential(layer, nn.ReLU()).eval(), (3,))
    lower, upper = torch.rand(5, 3).double() - 1, torch.rand(5, 3).double()
    (low, high), *_ = interval_bounds(network, lower, upper).values()
    weight, bias = layer.weight.detach(), layer.bias.detach()
    positive, negative = weight.clamp(min=0), weight.clamp(max=0)
    torch.testing.assert_close(low, lower @ positive.t() + upper @ negative.t() + bias)
    torch.testing.assert_close(high, upper @ positive.t() + lower @ negative.t() + bias)


def test_an_activation_without_a_record_cannot_slip_in() -> None:
    """Neither as monotone nor as no larger than 1, where nobody said so."""
    network = Network.from_module(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).double().eval(), (2,))
    (i,) = network.sites
    network.nodes[i] = replace(network.nodes[i], kind="softsign")  # type: ignore[call-arg]
    box = torch.zeros(1, 2).double()
    with pytest.raises(LingraftError, match="unknown activation 'softsign'"):
        interval_bounds(network, box, box)
    with pytest.raises(LingraftError, match="gelu"):
        bound_sites(network, Region(box[0], box[0]), Budget(), "intervals")
    found = SiteBounds({i: (box[0], box[0])}, {}, box[0], box[0], (box[0], box[0]), 0.0, [], [])
    with pytest.raises(LingraftError, match="gelu"):
        Sizes(network).of(i, [1.0] * i, found)
    with pytest.raises(AssertionError, match="how Site rounds"):
        fan_in(network.nodes[i])


def test_falling_lines_turn_the_interval_around() -> None:
    mask = torch.tensor([True, True, False])
    slope, intercept = torch.tensor([-2.0, 0.5, 9.0]).double(), torch.tensor([1.0, -1.0, 9.0]).double()
    site = Site("s", (3,), [0], "relu", mask, slope, intercept)
    low, high = through_site(site, torch.full((1, 3), -1.0).double(), torch.full((1, 3), 3.0).double())
    assert low.tolist()[0] == pytest.approx([-5.0, -1.5, 0.0], abs=1e-13)
    assert high.tolist()[0] == pytest.approx([3.0, 0.5, 3.0], abs=1e-13)
    assert (low[0, 2], high[0, 2]) == (0.0, 3.0), "only lines are widened"
