"""Facets lie above the ReLUs of the first site wherever they are asked, and make bounds tighter that stay sound."""

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lingraft.solver.ascent import improve
from lingraft.solver.branching import split
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Dual, root_domains
from lingraft.solver.facets import STEPS_OF_SHARE, FirstSite, first_site, fit
from lingraft.solver.proof import Shares
from lingraft.solver.tighten import tighten

SEEDS = st.integers(0, 10**6)


def _problem(seed: int, share: float = 0.3) -> tuple[Collapsed, FirstSite | None, Tensor, Tensor, Tensor]:
    """A margin and its first site; at points, scaled to |x| ≤ 1, x (n, N), z (T, N) and margins (N,)."""
    model, region, spec, _, collapsed, z, margins = nets.partly_negative(
        seed, "relu", share, convolutional=seed % 2 == 0
    )
    network, *_ = nets.collapsed(model, region, spec, spec[:, 0])
    points = network.inside(nets.points(region, seed, 400, model)).flatten(1).t()
    x = (points - collapsed.center[:, None]) / collapsed.radius[:, None].clamp(min=1e-30)
    return collapsed, first_site(collapsed), x, z, margins


def _random_shares(first: FirstSite, seed: int) -> Shares:
    """Any whole numbers, also such that are no shares."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.randint(-4, STEPS_OF_SHARE + 5, first.tap.shape, generator=generator).to(torch.int8)
    return Shares(first.tap, first.entry, share)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_any_facets_are_above_the_relus(seed: int) -> None:
    _, first, x, z, _ = _problem(seed)
    if first is None:
        return
    facets = first.facets(_random_shares(first, seed))
    here = z[: len(first.r)]
    above = facets.G.times(x) + facets.g
    assert bool((above >= here.clamp(min=0) - 1e-9).all())
    # and no constant could be smaller: there is a corner of the box at which they touch
    G, P = facets.G.dense(), torch.zeros(first.shape, dtype=torch.float64)
    P[first.tap, first.entry] = first.weight[first.tap, first.place]
    for tap in range(min(5, len(G))):
        corners = torch.stack([-G[tap].sign(), (P - G)[tap].sign()], 1)
        gap = G[tap] @ corners + facets.g[tap] - (P[tap] @ corners + first.r[tap]).clamp(min=0)
        assert float(gap.min()) == pytest.approx(0, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_envelopes_touch_the_relus_at_corners(seed: int) -> None:
    _, first, x, *_ = _problem(seed)
    if first is None:
        return
    corner = torch.where(x[:, 0] > 0, 1.0, -1.0).double()
    G = first.envelope(corner) * first.weight
    g = torch.maximum(G.abs().sum(1), (first.weight - G).abs().sum(1) + first.r)
    z = (first.weight * corner[first.pixel]).sum(1) + first.r
    torch.testing.assert_close((G * corner[first.pixel]).sum(1) + g, z.clamp(min=0), rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_bounds_are_sound_with_any_shares_and_multipliers(seed: int, single: bool) -> None:
    """At the root, on both sides of a split, and of taps tightened under the margin; found with Adam or made up."""
    collapsed, first, _, z, margins = _problem(seed)
    if first is None:
        return
    dtype = torch.float32 if single else torch.float64
    dual = Dual(collapsed, dtype)
    root = root_domains(collapsed, dtype)
    shares = fit(first, dual, root) if seed % 3 else _random_shares(first, seed)
    dual, exact = (Dual(collapsed, t).with_facets(first.facets(shares)) for t in (dtype, torch.float64))
    generator = torch.Generator().manual_seed(seed)
    root.alpha = torch.rand(root.alpha.shape, generator=generator).to(dtype)
    for domain in (root, improve(dual, root, 5)[1]):
        assert float(exact.bound(domain.exactly())) <= float(margins.min()) + 1e-9
    tap = dual.splittable(root).to(dtype).argmax(0)
    children = split(dual, root, tap)
    children.beta[tap] = torch.rand(1, 2, generator=generator).to(dtype)
    for side, here in enumerate([z[tap[0]] >= 0, z[tap[0]] <= 0]):
        for domains in (children, improve(dual, children, 5)[1]):
            bound = exact.bound(domains.exactly())[side]
            assert bool((margins[here] >= bound - 1e-9).all())
    tighten(dual, exact, root, torch.arange(collapsed.count), 4)
    here = z[:, margins <= 0]
    assert bool((here >= root.lower.double() - 1e-9).all())
    assert bool((here <= root.upper.double() + 1e-9).all())


@pytest.mark.parametrize("seed", range(6))
def test_the_gradient_is_that_of_the_bound(seed: int) -> None:
    collapsed, first, *_ = _problem(seed)
    if first is None:
        pytest.skip("this network has no taps in its first site")
    dual = Dual(collapsed, torch.float64)
    root = root_domains(collapsed, torch.float64)
    dual = dual.with_facets(first.facets(fit(first, dual, root)))
    root.alpha = 0.1 + 0.8 * torch.rand(root.alpha.shape, generator=torch.Generator().manual_seed(seed)).double()
    lines = dual.lines(root)
    gradient = dual.forward(dual.backward(dual.rows(root), lines, None), lines)[3]
    before = dual.bound(root)
    for tap in dual.open(root)[:, 0].nonzero().flatten().tolist():
        moved = root.select(torch.tensor([0]))
        moved.alpha[tap] += 1e-7
        slope = float(dual.bound(moved) - before) / 1e-7
        assert slope == pytest.approx(float(gradient[tap, 0]), abs=1e-4 * (1 + abs(slope)))


@pytest.mark.slow
def test_the_fitted_ones_make_bounds_tighter() -> None:
    """With the multipliers that the chords have, and clearly so on most networks."""
    gains = []
    for seed in range(12):
        collapsed, first, *_ = _problem(seed)
        if first is None:
            continue
        chords = Dual(collapsed, torch.float64)
        before, root = improve(chords, root_domains(collapsed, torch.float64), 20)
        facets = chords.with_facets(first.facets(fit(first, chords, root)))
        q = chords.bounded(root).q
        count = len(first.r)
        root.alpha[:count] = torch.where(q[:count] < 0, 1.0, root.alpha[:count])
        gains.append(float(facets.bound(root) - before))
    assert len(gains) >= 8
    assert sum(gain > 1e-6 for gain in gains) >= len(gains) // 2
    assert sum(gains) > 0
