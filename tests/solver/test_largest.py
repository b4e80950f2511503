"""Upper bounds of max pooling lie above it wherever they are asked, touch it, and make its problems quick to decide."""

from dataclasses import replace

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver.ascent import improve
from lingraft.solver.branching import split
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains, Dual, root_domains
from lingraft.solver.facets import Above, fit_pooled
from lingraft.solver.largest import Largest
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.verifier import Problem, Verifier

SEEDS = st.integers(0, 10**6)


def _model(seed: int, kernel: int = 3, side: int = 5) -> nn.Module:
    """Max pooling of a convolution, of its ReLUs (every third seed), or behind another layer (every third)."""
    torch.manual_seed(seed)
    before: list[nn.Module] = [nn.ReLU(), nn.Conv2d(2, 2, 1)][: seed % 3]
    count = 2 * ((side - 2) // kernel) ** 2
    layers = [nn.Conv2d(1, 2, 3), *before, nn.MaxPool2d(kernel), nn.Flatten(), nn.Linear(count, 2)]
    return nn.Sequential(*layers).double().eval()


def _problem(seed: int) -> tuple[Network, Collapsed, Above, Tensor, Tensor, Tensor, Tensor]:
    """A margin over max pooling; at points, scaled to |x| ≤ 1, x (n, N), z and h (T, N) and margins (N,)."""
    model, region = _model(seed), nets.box((1, 5, 5), seed, 0.3)
    spec = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    network, _, collapsed = nets.collapsed(model, region, spec, spec[:, 0])
    images = nets.points(region, seed, 200, model)
    x = network.inside(images).flatten(1).t() - collapsed.center[:, None]
    z, h = nets.tap_values(network, collapsed, images)
    with torch.no_grad():
        margins = (model(images) @ spec.t())[:, 0] + spec[0, 0]
    return network, collapsed, Above(collapsed), x / collapsed.radius[:, None].clamp(min=1e-30), z, h, margins


def _random_G(largest: Largest, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        block.middle() + 2 * block.unit * (torch.rand(block.pixel.shape, generator=generator).double() - 0.5)
        for block in largest.finals
    ]


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_any_facets_are_above_the_comparisons(seed: int) -> None:
    _, _, above, x, _, h, _ = _problem(seed)
    largest = above.largest
    if not largest.blocks:
        return
    facets = largest.facets(_random_G(largest, seed), above.none)
    upper = facets.G.times(x) + facets.g
    for first, rows in facets.on_taps.items():
        upper[first : first + len(rows.forward)] += rows.times(h[:first])
    assert facets.used.any()
    gap = (upper - h[: len(upper)])[facets.used[:, 0]]
    assert float(gap.min()) > -1e-9


@settings(max_examples=10, deadline=None)
@given(SEEDS.map(lambda seed: 3 * seed))  # players that are linear
def test_facets_of_linear_players_touch_the_maximum(seed: int) -> None:
    network, collapsed, above, *_ = _problem(seed)
    largest = above.largest
    G = _random_G(largest, seed)
    for block, mine in zip(largest.finals, G, strict=True):
        rows = torch.zeros_like(block.P).scatter_add_(1, block.pixel, mine * block.seen)
        g, worst = block.over(mine * block.seen).max(1)
        weight = block.weight[torch.arange(len(worst)), worst] * block.seen
        every = torch.zeros_like(block.P).scatter_add_(1, block.pixel, weight) - rows
        corners = torch.where(every > 0, 1.0, -1.0).double().t()  # (n, U)
        images = (collapsed.center[:, None] + collapsed.radius[:, None] * corners).t()
        _, h = nets.tap_values(network, collapsed, network.outside(images.view(-1, *network.nodes[0].shape)))
        b = block.P @ corners + block.r[:, None]
        for first, matrix in largest.on_taps.items():
            inside = ((block.tap >= first) & (block.tap < first + len(matrix.forward))).nonzero().flatten()
            b[inside] -= matrix.times(h[:first])[block.tap[inside] - first]
        gap = (rows @ corners + g[:, None] - b - h[block.tap]).diagonal()
        torch.testing.assert_close(gap, torch.zeros_like(gap), rtol=0, atol=1e-7)


@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_bounds_with_facets_are_sound_in_every_domain_and_only_rise(seed: int) -> None:
    _, collapsed, above, _, z, _, margins = _problem(seed)
    dual = Dual(collapsed, torch.float64)
    if not above.largest.blocks:
        return
    facets, domains = fit_pooled(above, dual, root_domains(collapsed, torch.float64))
    dual = dual.with_facets(facets)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(4):
        for any_ in (domains, *[_random_alpha(domains, generator) for _ in range(3)]):
            bounds = dual.bound(any_)
            for i in range(len(domains)):
                inside = ((z >= domains.lower[:, i : i + 1]) & (z <= domains.upper[:, i : i + 1])).all(0)
                assert not inside.any() or float(bounds[i]) <= float(margins[inside].min()) + 1e-9
        can = dual.splittable(domains).double()
        if not can.any(0).all():
            return
        taps = torch.multinomial(can.t(), 1, generator=generator)[:, 0]
        children = split(dual, domains, taps)
        _, domains = improve(dual, children, 3)


def _random_alpha(domains: Domains, generator: torch.Generator) -> Domains:
    return replace(domains, alpha=torch.rand(domains.alpha.shape, generator=generator).double())


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_splits_of_the_last_comparisons_never_lower_a_bound(seed: int) -> None:
    _, collapsed, above, *_ = _problem(3 * seed)
    dual = Dual(collapsed, torch.float64)
    if not above.largest.blocks:
        return
    facets, root = fit_pooled(above, dual, root_domains(collapsed, torch.float64))
    dual = dual.with_facets(facets)
    compared = torch.cat([block.tap for block in above.largest.blocks])
    q = dual.bounded(root).q
    for block in above.largest.finals:
        for tap in block.tap[q[block.tap, 0] < 0].tolist():
            full = root.select(torch.tensor([0]))
            mine = compared[torch.cat([b.final for b in above.largest.blocks]) == tap]
            full.alpha[mine] = 1.0
            children = split(dual, full, torch.tensor([tap]))
            assert float(dual.bound(children).min()) >= float(dual.bound(full)) - 1e-9


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_the_gradient_is_that_of_the_bound(seed: int) -> None:
    _, collapsed, above, *_ = _problem(seed)
    dual = Dual(collapsed, torch.float64)
    if not above.largest.blocks:
        return
    facets, domains = fit_pooled(above, dual, root_domains(collapsed, torch.float64))
    dual = dual.with_facets(facets)
    domains = _random_alpha(domains, torch.Generator().manual_seed(seed))
    row, lines = dual.bounded(domains), dual.lines(domains)
    gradient = dual.forward(row, lines)[3]
    for tap in dual.open(domains)[:, 0].nonzero().flatten().tolist():
        step = torch.zeros_like(domains.alpha)
        step[tap] = 1e-7
        higher, lower = (dual.bound(replace(domains, alpha=domains.alpha + sign * step)) for sign in (1, -1))
        assert float(higher - lower) / 2e-7 == pytest.approx(float(gradient[tap]), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(("side", "seed"), [(7, 0), (12, 1)])
def test_pools_of_25_values_are_decided(side: int, seed: int) -> None:
    """Above the exact minimum by 2 % of what the region takes from the margin, and below it by as much."""
    torch.manual_seed(seed)
    count = 4 * ((side - 2) // 5) ** 2
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(5), nn.Flatten(), nn.Linear(count, 2)).double().eval()
    image = torch.rand(1, side, side).double()
    region = Region((image - 0.1).clamp(0, 1), (image + 0.1).clamp(0, 1))
    spec = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    oracle = Oracle(model, region)
    least = oracle.minimum(oracle.margin(spec[0]))
    assert least is not None
    gap = float((model(image[None])[0] @ spec[0]).detach()) - least.value
    verifier = Verifier(Network.from_module(model, (1, side, side)))
    offset = torch.tensor([0.02 * gap - least.value], dtype=torch.float64)
    result = verifier.verify(Problem(image.float(), region, spec, offset), 60)
    assert result.verdict == "verified"
    assert result.domains < 200
    below = verifier.verify(Problem(image.float(), region, spec, offset - 0.04 * gap), 60)
    assert below.verdict == "falsified"
