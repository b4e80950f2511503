"""Rounding is accounted for: against exact rational arithmetic, with weights for which it matters."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lingraft.certificates import bounds as bounds_module
from lingraft.certificates import dual as dual_module
from lingraft.certificates import rounding
from lingraft.certificates.bounds import Bounds
from lingraft.certificates.collapse import collapse
from lingraft.certificates.dual import Columns, below

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


def lowest(network, low: float, high: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Bounds of the outputs: the default ones, and those of random multipliers in the collapsed network."""
    found = Bounds(network, np.array([low]), np.array([high]))
    spec, offset = np.eye(network.outputs), np.zeros(network.outputs)
    of = collapse(found, {}, spec, offset)
    alpha = rng.random((of.count, len(spec)))
    dual = below(of, Columns(of.q, of.p, of.c, of.slack), of.lower[:, None], of.upper[:, None], alpha, None).bound
    return [found.margins(spec, offset), dual]


@pytest.mark.parametrize("seed", range(120))
def test_no_bound_exceeds_the_exact_minimum(fully_connected, exact, seed):
    rng = np.random.default_rng(seed)
    layers = wild_layers(rng, [1, 3, 3, 2][: rng.integers(3, 5)])
    low, high = sorted(rng.choice([0.1, -0.3, 1 / 3, 0.7, 1e-3, 1 + 2.0**-50], 2))
    minima = exact(layers).minima(low, high)
    for values in lowest(fully_connected(layers), low, high, rng):
        assert all(not np.isfinite(v) or Fraction(float(v)) <= m for v, m in zip(values, minima, strict=True))


def test_without_the_account_of_rounding_bounds_do_exceed_it(fully_connected, exact, monkeypatch):
    """So the test above can fail."""
    for module in (rounding, bounds_module, dual_module):
        for name, blind in (("gamma", lambda terms: 0.0), ("down", lambda x: x), ("UNDERFLOW", 0.0), ("UNIT", 0.0)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, blind)
    wrong = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        layers = wild_layers(rng, [1, 3, 3, 2][: rng.integers(3, 5)])
        low, high = sorted(rng.choice([0.1, -0.3, 1 / 3, 0.7, 1e-3, 1 + 2.0**-50], 2))
        minima = exact(layers).minima(low, high)
        values = lowest(fully_connected(layers), low, high, rng)[0]
        wrong += any(np.isfinite(v) and Fraction(float(v)) > m for v, m in zip(values, minima, strict=True))
    assert wrong >= 5


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
