"""Bounds of unfolded networks: the same neurons are unstable as by rows, and nothing is looser than intervals."""

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.solver import unfolding
from lingraft.solver.bounds import SiteBounds, bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import collapse
from lingraft.solver.crown import crown_bounds
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.unfolding import Unfolding

SEEDS = st.integers(0, 10**6)


def _rounding(found: SiteBounds) -> float:
    """What sums of numbers as large as these may cost."""
    return 1e-9 * (1 + max(found.sizes)) ** 2


def _by_rows(network: Network, region: Region) -> SiteBounds:
    with nets.rows_only():
        found = bound_sites(network, region, Budget())
    assert found.unfolding is not None
    assert not found.unfolding.taps
    return found


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid"]), eps=st.floats(0, 0.4), graft=st.booleans())
def test_nothing_is_looser_than_intervals(seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, None, kind)
    model = nets.grafted(model, shape, seed) if graft else model
    network, region = Network.from_module(model, shape), nets.box(shape, seed, eps)
    found, wide = bound_sites(network, region, Budget()), bound_sites(network, region, Budget(), "intervals")
    for i in network.sites:
        lower, upper = found.bounds[i]
        assert bool((lower >= wide.bounds[i][0] - _rounding(wide)).all())
        assert bool((upper <= wide.bounds[i][1] + _rounding(wide)).all())
        assert bool((lower <= upper).all())


@pytest.mark.parametrize("seed", range(12))
def test_the_same_neurons_are_unstable_as_by_rows(seed: int) -> None:
    """Those that leave early are decided by rows, too; the others have bounds at least as good."""
    model, shape = nets.conv(seed)
    model = nets.grafted(model, shape, seed) if seed % 2 else model
    network, region = Network.from_module(model, shape), nets.box(shape, seed, 0.2)
    found, rows = bound_sites(network, region, Budget()), _by_rows(network, region)
    for i in network.sites:
        open_ = found.unstable(network, i)
        assert bool((open_ == rows.unstable(network, i)).all())
        assert bool((found.bounds[i][0][open_] >= rows.bounds[i][0][open_] - 1e-9).all())
        assert bool((found.bounds[i][1][open_] <= rows.bounds[i][1][open_] + 1e-9).all())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bend", [True, False])
def test_what_one_side_decides_keeps_the_other(seed: int, bend: bool) -> None:
    model, shape = nets.conv(seed)
    network, region = Network.from_module(model, shape), nets.box(shape, seed, 0.2)
    rows = _by_rows(network, region)
    tried = Unfolding(network, rows.center, rows.radius, rows.share, Budget())
    for i in network.sites:
        before = network.nodes[i].inputs[0]
        spans, every = tried.spans(before), torch.arange(network.nodes[i].size)
        assert spans is not None
        known = [end.flatten() for end in spans]
        found = tried.crown(before, every, *known, bend)
        assert found is not None
        free = [0.0] * len(network.nodes)
        best = crown_bounds(network, before, every, rows.lines, rows.center, rows.radius, Budget(), free)
        decided = (found[0] >= 0) | (found[1] <= 0)
        for ours, theirs, old in zip(found, best, known, strict=True):
            other = (ours - theirs).abs() > _rounding(rows)
            assert not bool((other & ~decided).any())
            assert bool((ours == old)[other].all())
            assert bend or not bool(other.any())
        assert bool(((found[0] >= 0) == (best[0] >= 0)).all() and ((found[1] <= 0) == (best[1] <= 0)).all())
        tried.bounded(i, rows.lines[i], rows.unstable(network, i), *rows.bounds[i])


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_at_a_point_bounds_are_the_forward_pass(seed: int) -> None:
    model, shape = nets.conv(seed)
    network = Network.from_module(model, shape)
    image = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).double()
    found = bound_sites(network, Region(image, image), Budget())
    values = network.values(image[None])
    for i in network.sites:
        for end in found.bounds[i]:
            torch.testing.assert_close(end, values[network.nodes[i].inputs[0]][0], rtol=0, atol=_rounding(found))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, graft=st.booleans())
def test_rows_of_taps_are_those_of_the_collapse(seed: int, graft: bool) -> None:
    model, shape = nets.conv(seed)
    model = nets.grafted(model, shape, seed) if graft else model
    network, region = Network.from_module(model, shape), nets.box(shape, seed, 0.2)
    found = bound_sites(network, region, Budget())
    spec, offset = nets.margins(0), torch.zeros(2).double()
    given = collapse(network, found, spec, offset)
    assert found.unfolding is not None
    assert list(found.unfolding.taps) == network.sites, "they came from there"
    found.unfolding = None
    for ours, theirs in zip(given.taps, collapse(network, found, spec, offset).taps, strict=True):
        for a, b in ((ours.P.dense(), theirs.P.dense()), (ours.Q.dense(), theirs.Q.dense()), (ours.r, theirs.r)):
            torch.testing.assert_close(a, b, rtol=0, atol=_rounding(found))
        for matrix in (ours.P, ours.Q):
            torch.testing.assert_close(matrix.backward.to_dense(), matrix.dense().t(), rtol=0, atol=0)
        assert bool((ours.loss >= 0).all() and (ours.loss < _rounding(found)).all())


def test_rows_are_those_of_other_taps_only_if_asked_for_them() -> None:
    """With bounds that were changed afterwards, rows pass back."""
    model, shape = nets.vector(0, hidden=(8, 7))
    network, region = Network.from_module(model, shape), nets.box(shape, 0, 0.5)
    found = bound_sites(network, region, Budget())
    site = network.sites[1]
    lower, upper = found.bounds[site]
    found.bounds[site] = lower.clamp(max=-0.1), upper.clamp(min=0.1)
    taps = collapse(network, found, nets.margins(0), torch.zeros(2).double()).taps
    assert len(taps[1].index) == int(found.unstable(network, site).sum()) == 7


@pytest.mark.parametrize("limit", ["products", "memory"])
def test_what_costs_too_much_passes_back(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = nets.vector(2, hidden=(30, 30))
    network, region = Network.from_module(model, shape), nets.box(shape, 2, 0.5)
    expected = bound_sites(network, region, Budget())
    if limit == "products":
        monkeypatch.setattr(unfolding, "FREE", 0.0)
        monkeypatch.setattr(unfolding, "PER_PRODUCT", 0.0)
    found = bound_sites(network, region, Budget(memory=2000.0 if limit == "memory" else float("inf")))
    assert expected.unfolding is not None
    assert expected.unfolding.possible
    assert found.unfolding is not None
    assert not found.unfolding.possible
    for i in network.sites:
        assert bool((found.unstable(network, i) == expected.unstable(network, i)).all())
