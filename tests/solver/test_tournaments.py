"""What a comparison of max pooling is said to be the largest of, against the network's own values."""

import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_comparisons_are_the_largest_of_their_players(seed: int) -> None:
    torch.manual_seed(seed)
    before = [nn.ReLU(), nn.Conv2d(2, 2, 1)][: seed % 3]
    pool = nn.MaxPool2d(3, stride=2, padding=seed % 2)
    layers = [nn.Conv2d(1, 2, 2), *before, pool, nn.Flatten(), nn.LazyLinear(2)]
    model = nn.Sequential(*layers).eval()
    model(torch.zeros(1, 1, 6, 6))
    model = model.double()
    region = nets.box((1, 6, 6), seed, 0.1)
    spec = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    network, _, collapsed = nets.collapsed(model, region, spec, spec[:, 0])
    known = collapsed.tournaments
    if known is None:
        return
    images = nets.points(region, seed, 50)
    x = network.inside(images).flatten(1).t()
    _, h = nets.tap_values(network, collapsed, images)
    players = known.players.P.times(x) + known.players.Q.times(h) + known.players.r[:, None]
    winners = {}
    for each in known.comparisons:
        there = (each.players >= 0)[:, :, None]
        largest = torch.where(there, players[each.players.clamp(min=0)], -torch.inf).amax(1)
        second = each.b.P.times(x) + each.b.r[:, None]
        second += each.b.Q.times(h[: each.first]) if each.first else 0.0
        mine = slice(each.first, each.first + len(each.players))
        torch.testing.assert_close(second + h[mine], largest, rtol=0, atol=1e-9)
        for row, tap in enumerate(range(each.first, each.first + len(each.players))):
            winners[tap] = set(each.players[row][each.players[row] >= 0].tolist()), int(each.final[row])
    for tap, (mine, final) in winners.items():  # the last comparison has all players of those before it
        assert final >= tap
        assert mine <= winners[final][0]
        assert winners[final][1] == final
