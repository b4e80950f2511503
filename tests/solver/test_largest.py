"""Upper bounds of max pooling lie above it wherever they are asked, touch it, and make its problems quick to decide."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver import largest
from lingraft.solver.ascent import improve
from lingraft.solver.branching import split
from lingraft.solver.collapse import Collapsed
from lingraft.solver.dual import Domains, Dual, root_domains
from lingraft.solver.facets import Above, fit, fit_pooled
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


class _Common(nn.Module):
    """Max pooling of values that all have the same ReLU taken away: no comparison depends on it, but both sides do."""

    def __init__(self, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.common, self.values, self.last = nn.Linear(25, 1), nn.Conv2d(1, 1, 2), nn.Linear(4, 2)
        self.pool, self.relu, self.times = nn.MaxPool2d(2), nn.ReLU(), float(seed % 4 - 4)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        bent = self.relu(self.common(x.flatten(1)))[:, :, None, None]
        return self.last(self.pool(self.values(x) + self.times * bent).flatten(1))


class _Tied(nn.Module):
    """Max pooling of three values, of which the first two are 0: neither of these is larger than the other."""

    def __init__(self, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.values, self.pool, self.last = nn.Linear(25, 9), nn.MaxPool2d((1, 3)), nn.Linear(28, 2)
        with torch.no_grad():
            for i in (0, 1):
                self.values.weight[i::3], self.values.bias[i::3] = 0.0, 0.0
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return self.last(torch.cat([self.pool(self.values(flat).view(-1, 3, 1, 3)).flatten(1), flat], 1))


def _problem(
    seed: int, make: Callable[[int], nn.Module] = _model
) -> tuple[Network, Collapsed, Above, Tensor, Tensor, Tensor, Tensor]:
    """A margin over max pooling; at points, scaled to |x| ≤ 1, x (n, N), z and h (T, N) and margins (N,)."""
    model, region = make(seed), nets.box((1, 5, 5), seed, 0.3)
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


@pytest.mark.parametrize("less", [0, 1])
def test_what_would_be_too_large_is_not_made(less: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the last blocks of players where all have too many weights, and nothing at all where there are more rows."""
    _, collapsed, above, *_ = _problem(4)
    weights = [block.weight.numel() for block in above.largest.blocks]
    rows = (above.largest.last - above.largest.first) * len(collapsed.center)
    assert weights[0] < rows < sum(weights)
    made = []
    for name in ("_players", "Block"):
        make = getattr(largest, name)
        monkeypatch.setattr(largest, name, lambda *given, name=name, make=make: made.append(name) or make(*given))
    monkeypatch.setattr(largest, "MOST", rows - less)
    assert not Above(collapsed).largest.blocks
    assert made == ([] if less else ["_players", "Block"])


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


@pytest.mark.parametrize("make", [_Common, _Tied])
@pytest.mark.parametrize("seed", range(6))
def test_rows_with_facets_are_below_the_margin_wherever_the_image_is(
    seed: int, make: Callable[[int], nn.Module]
) -> None:
    """What both sides of comparisons have in common is taken away with the second; one of two equal players stays."""
    _, collapsed, above, x, _, _, margins = _problem(seed, make)
    dual, root = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
    dual = dual.with_facets(fit_pooled(above, dual, root)[0])
    generator = torch.Generator().manual_seed(seed)
    for domain in (_random_alpha(root, generator) for _ in range(20)):
        row = dual.bounded(domain)
        below = row.p.t() @ x + row.c + row.p.abs().sum(0)
        assert float((margins - below).min()) > -1e-9


def _random_alpha(domains: Domains, generator: torch.Generator) -> Domains:
    alpha, share = (torch.rand(domains.alpha.shape, generator=generator).double() for _ in range(2))
    return replace(domains, alpha=alpha, share=share)


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
            full.share[mine] = 1.0
            children = split(dual, full, torch.tensor([tap]))
            assert float(dual.bound(children).min()) >= float(dual.bound(full)) - 1e-9


class _Beside(nn.Module):
    """Max pooling of ReLUs and of squares, whose sites do not need each other."""

    def __init__(self, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.bent, self.squared, self.both = nn.Linear(25, 6), nn.Linear(25, 4), nn.Linear(10, 18)
        self.pool, self.last, self.relu = nn.MaxPool2d((1, 3)), nn.Linear(6, 2), nn.ReLU()
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        values = self.both(torch.cat([self.relu(self.bent(flat)), torch.square(self.squared(flat))], 1))
        return self.last(self.pool(values.view(-1, 6, 1, 3)).flatten(1))


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_facets_of_some_sites_of_a_step_are_those_of_each_site_by_itself(seed: int) -> None:
    """The sites of ReLUs and squares are one step, and only the first has facets."""
    spec = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    _, _, collapsed = nets.collapsed(_Beside(seed), nets.box((1, 5, 5), seed, 0.3), spec, spec[:, 0])
    above, merged = Above(collapsed), Dual(collapsed, torch.float64)
    alone = Dual(replace(collapsed, tournaments=None), torch.float64)
    domains = root_domains(collapsed, torch.float64)
    if collapsed.tournaments is None or not above.count:
        return
    assert len(merged.taps) < len(alone.taps)
    facets = above.facets(fit(above, merged, domains))
    domains = _random_alpha(domains, torch.Generator().manual_seed(seed))
    ours, theirs = (dual.with_facets(facets) for dual in (merged, alone))
    row, other = (dual.bounded(domains) for dual in (ours, theirs))
    (*ours_too, share), (*theirs_too, others) = (
        dual.forward(found, dual.lines(domains)) for dual, found in ((ours, row), (theirs, other))
    )
    for mine, its in zip([*row, *ours_too, share[: len(others)]], [*other, *theirs_too, others], strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-9)
    assert not share[len(others) :].any()


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
    *_, gradient, on_share = dual.forward(row, lines)
    for tap in dual.open(domains)[:, 0].nonzero().flatten().tolist():
        step = torch.zeros_like(domains.alpha)
        step[tap] = 1e-7
        higher, lower = (dual.bound(replace(domains, alpha=domains.alpha + sign * step)) for sign in (1, -1))
        assert float(higher - lower) / 2e-7 == pytest.approx(float(gradient[tap]), rel=1e-3, abs=1e-4)
        higher, lower = (dual.bound(replace(domains, share=domains.share + sign * step)) for sign in (1, -1))
        expected = float(on_share[tap]) if tap < len(on_share) else 0.0
        assert float(higher - lower) / 2e-7 == pytest.approx(expected, rel=1e-3, abs=1e-4)


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
