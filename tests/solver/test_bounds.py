"""Bounds of pre-activations: sound for every operation, ordered by method, and never inside the exact range."""

import itertools
from typing import Any

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.solver.bounds import bound_sites, margin_crown, margin_intervals
from lingraft.solver.budget import Budget
from lingraft.solver.methods import METHODS, bounds
from lingraft.solver.network import Network

SEEDS = st.integers(0, 10**6)
#: What rounding of sums of a few numbers around one may cost.
ROUNDING = 1e-9


def _assert_inside(model: Any, region: Any, points: Any) -> None:
    seen = nets.preactivations(model, points)
    for method in METHODS:
        found = bounds(model, region, method)
        assert list(found) == list(seen)
        for name, (lower, upper) in found.items():
            assert lower.dtype == torch.float64
            assert lower.shape == seen[name].shape[1:]
            assert bool((seen[name] >= lower - ROUNDING).all()), (method, name)
            assert bool((seen[name] <= upper + ROUNDING).all()), (method, name)


@pytest.mark.parametrize("operation", ["conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine",
                                       "move", "identity"])  # fmt: skip
@settings(max_examples=5, deadline=None)
@given(
    seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), eps=st.floats(0, 0.5), graft=st.booleans()
)
def test_sampled_preactivations_lie_inside(operation: str, seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, operation, kind)
    if graft:
        model = nets.grafted(model, shape, seed)
    region = nets.box(shape, seed, eps)
    _assert_inside(model, region, nets.points(region, seed, 48, model))


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), eps=st.floats(0, 2), graft=st.booleans())
def test_sampled_preactivations_of_vectors_lie_inside(seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.vector(seed, kind, hidden=(8, 7, 6))
    if graft:
        model = nets.grafted(model, shape, seed)
    region = nets.box(shape, seed, eps)
    _assert_inside(model, region, nets.points(region, seed, 200, model))


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), st.floats(0, 1), st.booleans())
def test_sampled_margins_exceed_their_bounds(seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, None, kind)
    if graft:
        model = nets.grafted(model, shape, seed)
    region = nets.box(shape, seed, eps)
    network = Network.from_module(model, shape)
    spec, offset = torch.randn(4, 3).double(), torch.randn(4).double()
    margins = model(nets.points(region, seed, 64, model)).detach() @ spec.t() + offset
    wide = margin_intervals(bound_sites(network, region, Budget(), "intervals"), spec, offset)
    crown = margin_crown(network, bound_sites(network, region, Budget()), spec, offset)
    assert bool((wide <= crown + ROUNDING).all())
    assert bool((crown <= margins.amin(0) + ROUNDING).all())


def _families(seed: int) -> list:
    return [
        nets.vector(seed, hidden=(5, 4, 3)),
        nets.vector(seed, "leaky", hidden=(4, 4)),
        nets.residual_vector(seed, sign=-1 if seed % 2 else 1),
        nets.max_pool(seed),
        nets.conv(seed, None, "relu", small=True),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_intervals_contain_crown_contains_alpha_contains_exact(seed: int) -> None:
    unstable = 0
    for family, (model, shape) in enumerate(_families(seed)):
        if (seed + family) % 2:
            model = nets.grafted(model, shape, seed)
        region = nets.box(shape, seed, 0.5)
        by_method = [bounds(model, region, method) for method in METHODS]
        exact = Oracle(model, region)
        for name, z in exact.sites.items():
            chain = [(found[name][0].flatten(), found[name][1].flatten()) for found in by_method]
            for (low, high), (lower, upper) in itertools.pairwise(chain):
                assert bool((low <= lower + ROUNDING).all())
                assert bool((high >= upper - ROUNDING).all())
            for i, column in enumerate(z.flatten(1).t()):
                low, high = exact.minimum(column).value, -exact.minimum(-column).value
                assert float(chain[-1][0][i]) <= low + 1e-6
                assert float(chain[-1][1][i]) >= high - 1e-6
                unstable += low < 0 < high
    assert unstable > 20


def test_alpha_tightens_what_crown_leaves() -> None:
    """α-CROWN is not just allowed to equal CROWN: on deep networks it is narrower in many neurons."""
    narrower = neurons = 0
    for seed in range(5):
        model, shape = nets.vector(seed, hidden=(8, 8, 8))
        region = nets.box(shape, seed, 0.8)
        crown, alpha = bounds(model, region, "crown"), bounds(model, region, "alpha-crown")
        for name in crown:
            narrower += int(((crown[name][1] - crown[name][0]) > (alpha[name][1] - alpha[name][0]) + 1e-3).sum())
            neurons += crown[name][0].numel()
    assert narrower > neurons / 5


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), st.booleans())
def test_a_region_of_one_point_gives_the_forward_pass(seed: int, kind: str, graft: bool) -> None:
    model, shape = nets.conv(seed, None, kind)
    if graft:
        model = nets.grafted(model, shape, seed)
    region = nets.box(shape, seed, 0.0)
    seen = nets.preactivations(model, region.lower[None])
    for method in METHODS:
        for name, (lower, upper) in bounds(model, region, method).items():
            torch.testing.assert_close(lower, seen[name][0], rtol=0, atol=1e-8)
            torch.testing.assert_close(upper, seen[name][0], rtol=0, atol=1e-8)
    network = Network.from_module(model, shape)
    margin = margin_crown(
        network, bound_sites(network, region, Budget()), torch.eye(3).double(), torch.zeros(3).double()
    )
    torch.testing.assert_close(margin, model(region.lower[None])[0], rtol=0, atol=1e-8)


def test_bad_questions() -> None:
    model, shape = nets.vector(0)
    with pytest.raises(LingraftError, match=r"unknown method 'exact'.*intervals, crown"):
        bounds(model, nets.box(shape, 0, 0.1), "exact")
    with pytest.raises(LingraftError, match="lower exceeds upper"):
        bounds(model, (torch.ones(3), torch.zeros(3)))
    low, high = next(iter(bounds(model, (torch.zeros(3), torch.ones(3))).values()))
    assert bool((low < high).all())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), method=st.sampled_from(["intervals", "crown", "alpha-crown"]))
def test_bounds_of_the_outputs_hold_for_samples(seed: int, method: str) -> None:
    """In a box with a radius and a range for each feature, of a network that ends in a layer or in an activation."""
    torch.manual_seed(seed)
    layers = [nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)] + [nn.ReLU()] * (seed % 2)
    model, image = nn.Sequential(*layers).eval(), torch.randn(4)
    region = lingraft.Region.ball(image, 0.7 * torch.rand(4), clip=(image - 0.5, image + 0.2))
    found = lingraft.bounds(model, region, method)
    share = torch.rand(2000, 4, dtype=torch.float64)
    share[::2] = share[::2].round()
    points = region.lower + share * (region.upper - region.lower)
    with torch.no_grad():
        outputs = model.double()(points)
    low, high = found.outputs
    assert low.shape == high.shape == (3,)
    assert bool((outputs >= low).all() and (outputs <= high).all())
    if method != "intervals":
        wide = lingraft.bounds(model.float(), region, "intervals").outputs
        assert bool((low >= wide[0] - 1e-9).all() and (high <= wide[1] + 1e-9).all()), "no worse than intervals"
