"""Bounds of taps where the margin is not positive: they hold at every such point, and never cut the exact range."""

from dataclasses import replace
from typing import Any

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver import ascent
from lingraft.solver import tighten as tightening
from lingraft.solver.branching import split
from lingraft.solver.dual import Dual, root_domains
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.tighten import alpha_crown, tighten

SEEDS = st.integers(0, 10**6)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from(["relu", "relu", "leaky", "tanh"]), st.floats(0.01, 0.9), st.booleans(), st.booleans())
def test_points_with_a_margin_that_is_not_positive_stay(
    seed: int, kind: str, share: float, conv: bool, single: bool
) -> None:
    *_, collapsed, z, margins = nets.partly_negative(seed, kind, share, conv)
    if not collapsed.count:
        return
    dtype = torch.float32 if single else torch.float64
    dual, exact = Dual(collapsed, dtype), Dual(collapsed, torch.float64)
    domains = root_domains(collapsed, dtype)
    taps = torch.arange(collapsed.count)
    # where a search begins must not matter: some taps at anything, in the second round all where the first has ended
    anything = torch.randint(256, (collapsed.count, 2), dtype=torch.uint8)
    starts = {tap: (anything, anything, 5 * torch.randn(2)) for tap in range(0, collapsed.count, 2)}
    for _ in range(2):
        tighten(dual, exact, domains, taps, 5, starts)
        counterexamples = z[:, margins <= 0]
        assert counterexamples.shape[1]
        assert bool((counterexamples >= domains.lower.double() - 1e-9).all())
        assert bool((counterexamples <= domains.upper.double() + 1e-9).all())
    # and so they do in domains with splits: both sides of a tap, each with its own points
    if bool(dual.splittable(domains).any()):
        tap = dual.splittable(domains).to(dtype).argmax(0)
        at = domains.lower[tap, 0] if not dual.relu[tap, 0] else torch.zeros(1)
        at = at if dual.relu[tap, 0] else (domains.lower[tap, 0] + domains.upper[tap, 0]) / 2
        children = split(dual, domains, tap)
        children.beta[tap] = torch.rand(1, 2).to(dtype)
        for side, keep in enumerate([z[tap[0]] >= at.double(), z[tap[0]] <= at.double()]):
            child = children.select(torch.tensor([side]))
            tighten(dual, exact, child, taps, steps=5)
            here = z[:, keep & (margins <= 0)]
            assert bool((here >= child.lower.double() - 1e-9).all())
            assert bool((here <= child.upper.double() + 1e-9).all())


@pytest.mark.parametrize("seed", range(4))
def test_a_search_begins_where_the_last_one_ended(seed: int) -> None:
    *_, collapsed, _, _ = nets.partly_negative(seed, "relu", 0.1)
    dual, taps = Dual(collapsed, torch.float64), torch.arange(collapsed.count)
    starts: tightening.Starts = {}
    first = root_domains(collapsed, torch.float64)
    tighten(dual, dual, first, taps[::2], 40, starts)
    assert sorted(starts) == taps[::2].tolist()
    again, anew = root_domains(collapsed, torch.float64), root_domains(collapsed, torch.float64)
    tighten(dual, dual, again, taps, 0, starts)  # with no steps, what is found is where they begin
    assert not set(starts) & set(taps[::2].tolist())  # and nothing better, so that the next ones begin anew
    tighten(dual, dual, anew, taps, 0)
    width = lambda domains, some: float((domains.upper - domains.lower)[some].sum())  # noqa: E731
    assert width(again, taps[::2]) < width(anew, taps[::2]) - 1e-6
    assert width(again, taps[1::2]) == width(anew, taps[1::2])
    # with γ below 0 the points with a positive margin would count instead: a start of that kind is 0
    usual = (anew.alpha * 0 + 128).round().to(torch.uint8).expand(-1, 2)
    found = []
    for size in (0.0, -0.1):
        domain = root_domains(collapsed, torch.float64)
        starts = {k: (usual, usual, torch.full((2,), size)) for k in taps.tolist()}
        gamma = tighten(dual, dual, domain, taps, 0, starts).gamma
        assert not bool(gamma.any())
        found.append(domain)
    assert torch.equal(found[0].lower, found[1].lower)
    assert torch.equal(found[0].upper, found[1].upper)


@pytest.mark.parametrize("seed", range(6))
def test_tightened_bounds_contain_the_exact_range(seed: int) -> None:
    model, region, spec, offset, collapsed, _, _ = nets.partly_negative(seed, "relu", 0.1)
    dual = Dual(collapsed, torch.float64)
    domains = root_domains(collapsed, torch.float64)
    before = (domains.upper - domains.lower).clone()
    for _ in range(3):
        tighten(dual, dual, domains, torch.arange(collapsed.count), steps=20)
    exact = Oracle(model, region)
    margin = exact.margin(spec[0], float(offset))
    sites = list(exact.sites.values())
    tightest = []
    for number, taps in enumerate(collapsed.taps):
        for t, index in enumerate(taps.index.tolist()):
            column = sites[number].flatten(1)[:, index]
            low, high = exact.minimum(column, margin), exact.minimum(-column, margin)
            lower, upper = (float(b[taps.first + t, 0]) for b in (domains.lower, domains.upper))
            assert lower <= low.value + 1e-5
            assert upper >= -high.value - 1e-5
            tightest.append((upper - lower) - (-high.value - low.value))
    assert bool((domains.upper - domains.lower <= before + 1e-12).all())
    assert float((domains.upper - domains.lower).sum()) < float(before.sum())
    assert min(tightest) >= -2e-5


@pytest.mark.slow
def test_bounds_that_cross_prove_the_margin() -> None:
    """They may only cross where the margin is positive, and on easy problems they do."""
    crossed = 0
    for seed in range(12):
        model, region, spec, _offset, *_ = nets.partly_negative(seed, "relu", 0.1)
        exact = Oracle(model, region).minimum(Oracle(model, region).margin(spec[0], 0.0))
        for delta in (0.3, -1e-7):
            _, _, collapsed = nets.collapsed(model, region, spec, torch.tensor([delta - exact.value]).double())
            if not collapsed.count:
                continue
            dual = Dual(collapsed, torch.float32)
            domains = root_domains(collapsed, torch.float32)
            for _ in range(4):
                tighten(dual, Dual(collapsed, torch.float64), domains, torch.arange(collapsed.count), 20)
            empty = bool((domains.lower > domains.upper).any())
            assert not (empty and delta < 0)
            crossed += empty
    assert crossed >= 2


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_gradients_of_the_search(seed: int) -> None:
    """∂bound/∂γ is the margin at the minimizer, and α's is as in `improve`: compared with differences of the bound."""
    *_, collapsed, _, _ = nets.partly_negative(seed, "relu", 0.2)
    dual = Dual(collapsed, torch.float64)
    count = collapsed.count
    if not count:
        return
    seen: list[tuple[Tensor, Tensor]] = []
    ascend = ascent.Adam.ascend

    def recorded(self: ascent.Adam, gradient: Tensor, rate: Any) -> None:
        seen.append((self.value.clone(), gradient.clone()))
        ascend(self, gradient, rate)

    columns = root_domains(collapsed, torch.float64).select(torch.zeros(count, dtype=torch.long))
    rows, margin = dual.tap_rows(torch.arange(count)), dual.rows(columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ascent.Adam, "ascend", recorded)
        tightening._search(dual, columns, rows, torch.zeros_like(rows.c), torch.ones(1).double(), 3)
    assert len(seen) == 6  # γ and α, three times: nothing is split

    def bound(gamma: Tensor, alpha: Tensor) -> Tensor:
        return dual.bound(replace(columns, alpha=alpha), tightening._plus(rows, gamma, margin))

    (gamma, by_gamma), (alpha, by_alpha) = seen[4], seen[5]
    middle, step = bound(gamma, alpha), 1e-6 * (1 + gamma)
    right, left = (bound(gamma + step, alpha) - middle) / step, (middle - bound(gamma - step, alpha)) / step
    noise = 1e-6 + 1e-13 * (1 + middle.abs()) / step
    smooth = (right - left).abs() < noise  # no kink within the step, as there is for most at γ = 0
    assert bool(((by_gamma - right).abs() < 2 * noise)[smooth].all())
    direction = torch.rand(alpha.shape).double() - 0.5
    right, left = (bound(gamma, alpha + s * 1e-6 * direction) - middle for s in (1, -1))
    smooth = (right + left).abs() < 1e-3 * (right - left).abs()  # no kink within the step
    along = (by_alpha * direction).sum(0)
    torch.testing.assert_close(along[smooth], (right - left)[smooth] / 2e-6, rtol=1e-2, atol=1e-4)


def test_tap_rows_are_the_preactivations() -> None:
    for seed in range(6):
        *_, _region, _, _, collapsed, z, _ = nets.partly_negative(seed, "relu", 0.2)
        dual = Dual(collapsed, torch.float64)
        if not collapsed.count:
            continue
        domains = root_domains(collapsed, torch.float64).select(torch.zeros(collapsed.count, dtype=torch.long))
        taps = torch.arange(collapsed.count)
        low = dual.bound(domains, dual.tap_rows(taps))
        assert bool((z >= low[:, None] - 1e-9).all())
        assert bool((low <= collapsed.upper).all())


@pytest.mark.parametrize("seed", [1, 3, 7])
def test_the_margin_counts_where_it_sees_pixels_through_taps_only(seed: int) -> None:
    """Then p of its own row is 0, and how far it reaches is known only after it was passed back."""
    collapsed, *_ = nets.with_taps(seed, "relu", 0.5, False)
    collapsed = replace(collapsed, p=torch.zeros_like(collapsed.p))
    root = root_domains(collapsed, torch.float64)
    bounded = Dual(collapsed, torch.float64).bounded(root)
    near = bounded.c + 0.1 * bounded.p.abs().sum(0)
    dual, base = Dual(replace(collapsed, c=collapsed.c - near), torch.float64), root.select(torch.tensor([0]))
    found = tighten(dual, dual, base, dual.open(base)[:, 0].nonzero().flatten(), 8)
    assert float((found.gamma > 0).double().mean()) > 0.8


def test_where_nothing_is_unstable_bounds_are_points() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)).double().eval()
    point = torch.ones(2).double()
    ((lower, upper),) = alpha_crown(Network.from_module(model, (2,)), Region(point, point)).values()
    torch.testing.assert_close(lower, upper)
