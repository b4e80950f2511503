"""CROWN over taps gives what rows that pass back give, however values are put together."""

from dataclasses import replace

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.solver import substitution
from lingraft.solver.bounds import SiteBounds, bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.crown import crown_bounds
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.substitution import substituted, substitutions
from lingraft.solver.unfolding import Unfolding

SEEDS = st.integers(0, 10**6)


def _all(network: Network, region: Region) -> tuple[SiteBounds, Unfolding]:
    """Bounds by rows, and what unfolds with them."""
    with nets.rows_only():
        found = bound_sites(network, region, Budget())
    unfolding = Unfolding(network, found.center, found.radius, found.share, Budget())
    for i in network.sites:
        unfolding.bounded(i, found.lines[i], found.unstable(network, i), *found.bounds[i])
    return found, unfolding


@pytest.mark.parametrize(("together", "calls"), [(1, 0.0), (5, 1e9), (32, 300_000.0)])
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid"]), eps=st.floats(0.05, 0.4), graft=st.booleans())
def test_bounds_are_those_of_rows(together: int, calls: float, seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, None, kind)
    model = nets.grafted(model, shape, seed) if graft else model
    network, region = Network.from_module(model, shape), nets.box(shape, seed, eps)
    found, unfolding = _all(network, region)
    free = [0.0] * len(network.nodes)  # neither pays for rounding, in which they differ
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(substitution, "TOGETHER", together)
        patch.setattr(substitution, "CALLS", calls)
        for i in network.sites:
            before = network.nodes[i].inputs[0]
            every = torch.arange(network.nodes[i].size)
            rows = crown_bounds(network, before, every, found.lines, found.center, found.radius, Budget(), free)
            x = unfolding._reach(before)
            if x is None:  # it is the image, or costs too much
                continue
            taps = [replace(t, loss=torch.zeros_like(t.loss)) for t in unfolding.taps.values() if len(t.index)]
            assert all(cost >= 0 for cost in substitutions(x, every, taps, found.center.numel()))
            sides = torch.stack([rows[0], -rows[1]])
            sign = torch.where(torch.rand(len(every), generator=torch.Generator().manual_seed(seed)) < 0.5, -1.0, 1.0)
            for whole in (False, True):
                for which, theirs in ((None, sides), (sign.double(), torch.where(sign > 0, *sides))):
                    ours = substituted(x, every, which, taps, unfolding.radius, whole)
                    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * (1 + max(found.sizes)))


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = nets.vector(3, hidden=(8, 7))
    network, region = Network.from_module(model, shape), nets.box(shape, 3, 0.8)
    _, unfolding = _all(network, region)
    last = network.nodes[network.sites[-1]].inputs[0]
    x = unfolding._reach(last)
    assert x is not None
    taps, every = [t for t in unfolding.taps.values() if len(t.index)], torch.arange(network.nodes[last].size)
    assert taps
    expected = substituted(x, every, None, taps, unfolding.radius, True)
    monkeypatch.setattr(substitution, "CHUNK", 1)
    torch.testing.assert_close(substituted(x, every, None, taps, unfolding.radius, True), expected)
