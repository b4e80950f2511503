"""Facets lie above the ReLUs wherever they are asked, and make bounds tighter that stay sound."""

from dataclasses import replace

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
from lingraft.solver.facets import Above, fit, in_full
from lingraft.solver.proof import Shares
from lingraft.solver.tighten import tighten

SEEDS = st.integers(0, 10**6)


def _problem(seed: int, share: float = 0.3) -> tuple[Collapsed, Above, Tensor, Tensor, Tensor]:
    """A margin and functions above its taps; at points, scaled to |x| ≤ 1, x (n, N), z (T, N) and margins (N,)."""
    model, region, spec, _, collapsed, z, margins = nets.partly_negative(
        seed, "relu", share, convolutional=seed % 2 == 0
    )
    network, *_ = nets.collapsed(model, region, spec, spec[:, 0])
    points = network.inside(nets.points(region, seed, 400, model)).flatten(1).t()
    x = (points - collapsed.center[:, None]) / collapsed.radius[:, None].clamp(min=1e-30)
    return collapsed, Above(collapsed), x, z, margins


def _random_shares(above: Above, seed: int) -> Shares:
    """Any whole numbers, also such that are no shares, of some of the taps."""
    generator = torch.Generator().manual_seed(seed)
    share = [torch.rand(block.weight.shape, generator=generator).double() * 1.6 - 0.3 for block in above.blocks]
    return above.shares(share, torch.rand(above.count, generator=generator) < 0.7)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_any_facets_are_above_the_relus(seed: int) -> None:
    _, above, x, z, _ = _problem(seed)
    if not above.count:
        return
    facets = above.facets(_random_shares(above, seed))
    higher = facets.G.times(x) + facets.g >= z[: above.count].clamp(min=0) - 1e-9
    assert bool((higher | ~facets.used).all())
    for block in above.blocks:
        here = slice(block.first, block.last)
        W = torch.zeros(len(block.w), above.pixels, dtype=torch.float64)
        W[block.tap, block.entry] = block.weight[block.tap, block.place]
        assert bool((W @ x + block.w[:, None] >= z[here] - 1e-9).all())
        if not block.first:
            torch.testing.assert_close(W @ x + block.w[:, None], z[here], rtol=0, atol=1e-9)
        # and no constant could be smaller: there is a corner of the box at which they touch
        G = facets.G.times(torch.eye(above.pixels, dtype=torch.float64))[here]
        for tap in facets.used[here, 0].nonzero().flatten().tolist()[:5]:
            corners = torch.stack([-G[tap].sign(), (W - G)[tap].sign()], 1)
            gap = G[tap] @ corners + facets.g[here][tap] - (W[tap] @ corners + block.w[tap]).clamp(min=0)
            assert float(gap.min()) == pytest.approx(0, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_envelopes_touch_the_relus_at_corners(seed: int) -> None:
    _, above, x, *_ = _problem(seed)
    corner = torch.where(x[:, 0] > 0, 1.0, -1.0).double()
    for block in above.blocks:
        G = block.envelope(corner) * block.weight
        g = torch.maximum(G.abs().sum(1), (block.weight - G).abs().sum(1) + block.w)
        z = (block.weight * corner[block.pixel]).sum(1) + block.w
        torch.testing.assert_close((G * corner[block.pixel]).sum(1) + g, z.clamp(min=0), rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_bounds_are_sound_with_any_shares_and_multipliers(seed: int, single: bool) -> None:
    """At the root, on both sides of a split, and of taps tightened under the margin; found with Adam or made up."""
    collapsed, above, _, z, margins = _problem(seed)
    if not above.count:
        return
    dtype = torch.float32 if single else torch.float64
    dual = Dual(collapsed, dtype)
    root = root_domains(collapsed, dtype)
    shares = fit(above, dual, root) if seed % 3 else _random_shares(above, seed)
    dual, exact = (Dual(collapsed, t).with_facets(above.facets(shares)) for t in (dtype, torch.float64))
    generator = torch.Generator().manual_seed(seed)
    root.alpha, root.share = (torch.rand(root.alpha.shape, generator=generator).to(dtype) for _ in range(2))
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
    collapsed, above, *_ = _problem(seed)
    if not above.count:
        pytest.skip("this network has no taps")
    dual = Dual(collapsed, torch.float64)
    root = root_domains(collapsed, torch.float64)
    dual = dual.with_facets(above.facets(fit(above, dual, root)))
    generator = torch.Generator().manual_seed(seed)
    root.alpha, root.share = (0.1 + 0.8 * torch.rand(root.alpha.shape, generator=generator).double() for _ in range(2))
    lines = dual.lines(root)
    *_, gradient, on_share = dual.forward(dual.backward(dual.rows(root), lines, None), lines)
    before = dual.bound(root)
    for tap in dual.open(root)[:, 0].nonzero().flatten().tolist():
        for name, expected in (("alpha", gradient), ("share", on_share))[: 1 + (tap < above.count)]:
            moved = root.select(torch.tensor([0]))
            getattr(moved, name)[tap] += 1e-7
            slope = float(dual.bound(moved) - before) / 1e-7
            assert slope == pytest.approx(float(expected[tap, 0]), abs=1e-4 * (1 + abs(slope)))


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_proofs_tell_the_share_in_place_of_a_slope_without_a_use(seed: int) -> None:
    """One number for each tap, used as slope or as share, whichever its coefficient asks for, gives the same bound."""
    collapsed, above, *_ = _problem(seed)
    if not above.count:
        return
    chords, root = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
    dual = chords.with_facets(above.facets(_random_shares(above, seed)))
    generator = torch.Generator().manual_seed(seed)
    root.alpha, root.share = (torch.rand(root.alpha.shape, generator=generator).double() for _ in range(2))
    domains = split(dual, root, dual.splittable(root).double().argmax(0)).exactly()
    row = dual.bounded(domains)
    told = dual.told(domains, row.q)
    alike = replace(told, share=told.alpha)
    torch.testing.assert_close(dual.bound(alike), row.c, rtol=0, atol=1e-12)
    assert bool((told.alpha == torch.where(row.q < 0, told.alpha, domains.alpha)).all())
    assert chords.told(domains, row.q) is domains


@pytest.mark.slow
def test_the_fitted_ones_make_bounds_tighter() -> None:
    """With the multipliers that the chords have, and clearly so on most networks."""
    gains, later = [], 0
    for seed in range(12):
        collapsed, above, *_ = _problem(seed)
        if not above.count:
            continue
        chords = Dual(collapsed, torch.float64)
        before, root = improve(chords, root_domains(collapsed, torch.float64), 20)
        facets = chords.with_facets(above.facets(fit(above, chords, root)))
        after, _ = improve(facets, in_full(root), 20)
        gains.append(float(after - before))
        later += len(above.blocks) > 1
    assert later >= 4
    assert len(gains) >= 8
    assert sum(gain > 1e-6 for gain in gains) >= len(gains) // 2
    assert sum(gains) > 0
