"""Rounding is accounted for: against exact rational arithmetic, with weights for which it matters."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from exact_rational import Exact
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lingraft.checker import bounds as bounds_module
from lingraft.checker import clip as clipping
from lingraft.checker import collapse as collapse_module
from lingraft.checker import dual as dual_module
from lingraft.checker import rounding
from lingraft.checker.bounds import Bounds
from lingraft.checker.clip import clip, make_groups
from lingraft.checker.collapse import Collapsed, collapse
from lingraft.checker.dual import Columns, below, margin, signed_taps
from lingraft.checker.facets import Facets, make_facets
from lingraft.checker.format import FacetShares
from lingraft.checker.rows import Rows

#: Numbers that cancel: sums of products of three of them need far more than 53 bits.
WILD = [1.0, -1.0, 2.0**24 - 1, 1 - 2.0**24, 2.0**-20 + 2.0**-43, 1 / 3, -1e8, 1e8, 1e-7, 3e12, -3e12, 0.0]


def wild_layers(rng: np.random.Generator, widths: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        weight = rng.choice(WILD, (outputs, inputs))
        if inputs > 1 and outputs > 1:  # a second row that nearly cancels the first
            weight[1] = -weight[0] * (1 + rng.choice([0, 2.0**-23, -(2.0**-22)]))
        layers.append((weight, rng.choice(WILD, outputs) * rng.choice([0.0, 1.0], outputs)))
    return layers


def cancelling_layers(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Neurons that are on for x > 0, whose large values nearly cancel in the outputs."""
    first = rng.uniform(1e11, 3e12, (2, 1)).astype(np.float32)
    second = rng.uniform(0.5, 2, (3, 2)).astype(np.float32)
    slopes = second.astype(np.float64) @ first
    free = rng.uniform(0.5, 2, (2, 2)).astype(np.float32).astype(np.float64)
    last = np.concatenate([free, -(free @ slopes[:2]) / slopes[2]], axis=1)
    return [(first, np.zeros(2)), (second, np.zeros(3)), (last, np.zeros(2))]


def lowest(network, low: float, high: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Bounds of the outputs: the default ones, and those of random multipliers in the collapsed network."""
    found = Bounds(network, np.array([low]), np.array([high]))
    spec, offset = np.eye(network.outputs), np.zeros(network.outputs)
    of = collapse(found, {}, spec, offset)
    alpha = rng.random((of.count, len(spec)))
    dual = below(of, Columns(of.q, of.p, of.c, of.slack), of.lower[:, None], of.upper[:, None], alpha, None).bound
    return [found.margins(spec, offset), dual]


def cases(count: int):
    """Layers, a region and what is random about the multipliers."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        if seed % 2:
            yield cancelling_layers(rng), *sorted(rng.uniform(0.1, 1, 2).tolist()), rng
        else:
            layers = wild_layers(rng, [1, 3, 3, 2][: rng.integers(3, 5)])
            yield layers, *sorted(rng.choice([0.1, -0.3, 1 / 3, 0.7, 1e-3, 1 + 2.0**-50], 2).tolist()), rng


def excess(fully_connected, count: int) -> list[int]:
    """How many default bounds, and how many of the collapsed network, exceed the exact minimum."""
    wrong = [0, 0]
    for layers, low, high, rng in cases(count):
        minima = Exact(layers).minima(low, high)
        for i, values in enumerate(lowest(fully_connected(layers), low, high, rng)):
            wrong[i] += any(np.isfinite(v) and Fraction(float(v)) > m for v, m in zip(values, minima, strict=True))
    return wrong


@pytest.mark.slow
def test_no_bound_exceeds_the_exact_minimum(fully_connected):
    assert excess(fully_connected, 300) == [0, 0]


def test_without_the_account_of_rounding_bounds_do_exceed_it(fully_connected, monkeypatch):
    """So the test above can fail; also if only one part of the account is missing."""

    def blind(*names: str) -> None:
        for module in (rounding, bounds_module, collapse_module, dual_module):
            for name, value in (("gamma", lambda terms: 0.0), ("down", lambda x: x), ("UNDERFLOW", 0.0), ("UNIT", 0.0)):
                if hasattr(module, name) and (module.__name__.rpartition(".")[2] in names):
                    monkeypatch.setattr(module, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "dot", lambda self, each: np.zeros(self.a.shape[:2]))
        assert min(excess(fully_connected, 60)) >= 3
    blind("rounding", "bounds", "collapse", "dual")
    assert min(excess(fully_connected, 60)) >= 3


def random_facets(of: Collapsed, rng: np.random.Generator) -> dict[int, Facets]:
    """Any whole numbers as shares, for some of the taps, and any slopes for those behind the first site."""
    order, pixels = np.arange(of.count), np.arange(len(of.radius))
    sizes = rng.integers(0, len(pixels) + 1, of.count)
    where = np.concatenate([np.zeros(0, np.int64), *[rng.permutation(pixels)[:size] for size in sizes]])
    slopes = np.zeros((1, of.count), np.uint8)  # only whether there are any is read
    shares = FacetShares(sizes, where, rng.integers(-5, 21, len(where)), slopes)
    return make_facets(of, order, pixels, shares, rng.random(of.count))


@pytest.mark.parametrize("seed", range(60))
def test_facets_are_above_exact_relus(fully_connected, seed):
    """G·d + g ≥ relu(z) in rational arithmetic, at the ends of the box and inside.

    In the first site, where z is a function of the image, g is no larger than it must be.
    """
    rng = np.random.default_rng(seed)
    layers = wild_layers(rng, [1, 4, 3, 2])
    if seed % 2:
        layers = [(rng.standard_normal(w.shape), rng.standard_normal(b.shape)) for w, b in layers]
    low, high = -1.0, 1 / 3
    found = Bounds(fully_connected(layers), np.array([low]), np.array([high]))
    of = collapse(found, {}, np.eye(2), np.zeros(2))
    every = random_facets(of, rng)
    center, net = Fraction(float(found.center.reshape(-1)[0])), Exact(layers)
    for layer, numbers in enumerate(of.numbers.values()):
        for place in np.flatnonzero(numbers):
            tap = numbers[place] - 1
            first = max(block.first for block in of.blocks if block.first <= tap < block.last)
            if first not in every or not every[first].used[tap - first]:
                continue
            facets = every[first]
            G = Fraction(float(facets.G.toarray()[tap - first, 0]))
            g = Fraction(float(facets.g[tap - first]))
            gaps = []
            for x in (Fraction(low), Fraction(high), Fraction(low) / 3, Fraction(high) / 7):
                gaps.append(G * (x - center) + g - max(net.values(x)[layer][place], 0))
            assert min(gaps) >= 0
            if not layer:
                assert min(gaps) <= 1e-6 * (1 + g)


@pytest.mark.parametrize("seed", range(60))
def test_tightened_bounds_hold_wherever_the_margin_is_not_positive(fully_connected, seed):
    """Rounds and clips, with weights that cancel and with ordinary ones: against exact values of all neurons."""
    rng = np.random.default_rng(seed)
    layers = wild_layers(rng, [1, 4, 3, 2])
    if seed % 2:
        layers = [(rng.standard_normal(w.shape), rng.standard_normal(b.shape)) for w, b in layers]
    network = fully_connected(layers)
    low, high = -1.0, 1 / 3
    of = collapse(Bounds(network, np.array([low]), np.array([high])), {}, np.eye(2), np.zeros(2))
    goal = margin(of, 0)
    shift = float(of.c[0] + rng.uniform(0, 1) * np.abs(of.p[:, 0]) @ of.radius)  # so that it is ≤ 0 in a part only
    goal = replace(goal, c=goal.c - shift)
    slopes = rng.random((of.count, 1))
    taps, sides = np.repeat(np.arange(of.count), 2), np.tile([1.0, -1.0], of.count)
    rows = signed_taps(of, taps, sides, rng.choice([0, 0.1, 1, 30], len(taps)), goal)
    facets = random_facets(of, rng) if seed % 3 else None
    value = below(
        of, rows, of.lower[:, None], of.upper[:, None], np.repeat(slopes, len(taps), axis=1), None, facets
    ).bound
    lower, upper = of.lower.copy(), of.upper.copy()
    np.maximum.at(lower, taps[sides > 0], value[sides > 0])
    np.minimum.at(upper, taps[sides < 0], -value[sides < 0])
    groups = make_groups(of, np.arange(of.count) % 2, lower, upper, slopes[:, 0])
    low_, high_ = lower[:, None].copy(), upper[:, None].copy()
    clip(of, groups, [0.3, 1.0, 5.0], below(of, goal, low_, high_, slopes, None, facets), low_, high_)
    # the margin less the shift, exactly, as another output bias
    net = Exact(layers)
    net.layers[-1][1][0] -= Fraction(shift)
    layer_of = {node: i for i, node in enumerate(of.numbers)}
    for x in net.where_not_positive(low, high, 0):
        values = net.values(x)
        for node, numbers in of.numbers.items():
            for place in np.flatnonzero(numbers):
                tap, z = numbers[place] - 1, values[layer_of[node]][place]
                assert z >= Fraction(float(low_[tap, 0]))
                assert z <= Fraction(float(high_[tap, 0]))


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_forms_are_the_same_however_many_are_made_at_once(monkeypatch, fully_connected, most):
    """Groups of a site share a pass; each has its own taps, columns and pixels, and parts of one stay apart."""
    rng = np.random.default_rng(0)
    sizes = [(9, 4), (7, 9), (2, 7)]
    network = fully_connected([(rng.standard_normal(size), rng.standard_normal(size[0])) for size in sizes])
    of = collapse(Bounds(network, np.full(4, -1.0), np.full(4, 1.0)), {}, np.eye(2), np.zeros(2))
    numbers = rng.integers(-1, 4, of.count)
    slopes = rng.random(of.count)
    monkeypatch.setattr(clipping, "CHUNK", most)
    groups = make_groups(of, numbers, of.lower, of.upper, slopes)
    assert sorted(np.concatenate([group.taps for group in groups])) == np.flatnonzero(numbers >= 0).tolist()
    for group in groups:
        assert len(set(numbers[group.taps])) == 1
        assert len(group.taps) <= most
        for place, tap in enumerate(group.taps):
            alone = np.full(of.count, -1)
            alone[tap] = 0
            (single,) = make_groups(of, alone, of.lower, of.upper, slopes)
            both = [place, place + len(group.taps)]
            for mine, its in (
                (group.constant, single.constant),
                (group.bound, single.bound),
                (group.size, single.size),
            ):
                np.testing.assert_allclose(mine[both], its, rtol=1e-12)
            forms = np.zeros((2, len(of.radius)))
            forms[:, group.pixels] = group.unit[both]
            np.testing.assert_allclose(forms[:, single.pixels], single.unit, rtol=1e-12, atol=1e-15)


finite = st.floats(-1e30, 1e30, allow_subnormal=True)


@settings(max_examples=200, deadline=None)
@given(arrays(np.float64, (2, 9), elements=finite))
def test_gamma_bounds_the_error_of_a_dot_product(pair):
    a, b = pair
    real = sum((Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)), Fraction(0))
    error = abs(Fraction(float(a @ b)) - real)
    assert error <= Fraction(rounding.gamma(9) * float(np.abs(a) @ np.abs(b)) + rounding.UNDERFLOW)


@settings(max_examples=200, deadline=None)
@given(finite, finite)
def test_middle_covers_the_interval(a, b):
    low, high = np.array([min(a, b)]), np.array([max(a, b)])
    center, radius = (Fraction(float(t[0])) for t in rounding.middle(low, high))
    assert center - radius <= Fraction(float(low[0]))
    assert center + radius >= Fraction(float(high[0]))
    assert low[0] != high[0] or radius == 0


@settings(max_examples=200, deadline=None)
@given(finite, st.floats(0, 1e30))
def test_around_is_outward(value, radius):
    low, high = (Fraction(float(t[0])) for t in rounding.around(np.array([value]), np.array([radius])))
    assert low <= Fraction(value) - Fraction(radius)
    assert high >= Fraction(value) + Fraction(radius)
    assert radius or low == high == Fraction(value)
