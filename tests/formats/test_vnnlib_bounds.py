"""Bounds that follow from constraints between inputs: never too narrow, and as narrow as linear programs get them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.formats.vnnlib_bounds import tighten
from lingraft.formats.vnnlib_formula import Atom, outward

INF = math.inf


def row(*factors: float, constant: float = 0.0) -> Atom:
    return Atom(tuple((i, factor) for i, factor in enumerate(factors) if factor), constant, 1)


def bounds(lower: list[float], upper: list[float], *atoms: Atom) -> list[list[float]]:
    return [side.tolist() for side in tighten(np.array(lower, float), np.array(upper, float), atoms)]


def test_propagation_reaches_inputs_without_bounds():
    assert bounds([0, -INF, -INF], [1, INF, INF], row(1, -1), row(0, 1, -1), row(-1, 0, 1, constant=-2)) == [
        [0, 0, 0], [1, 3, 3],
    ]  # fmt: skip


def test_linear_programs_see_several_constraints_at_once():
    """x + y ≤ 1 and x − y ≤ 1 in [−2, 2]²: each alone lets x be 2, together 1."""
    assert bounds([-2, -2], [2, 2], row(1, 1, constant=-1), row(1, -1, constant=-1))[1] == [1, 2]


def test_what_has_no_bounds_keeps_none():
    assert bounds([-INF, -INF], [INF, INF], row(1, 1, constant=-1)) == [[-INF, -INF], [INF, INF]]


def test_an_empty_set_is_seen():
    lower, upper = bounds([0, 0], [1, 1], row(1, 1, constant=0.5))
    assert any(low > high for low, high in zip(lower, upper, strict=True))


@pytest.mark.parametrize("number", [Fraction(1, 3), Fraction(-1, 3), Fraction(1, 2), Fraction(10) ** 400])
def test_rounding_is_outward(number):
    low, high = outward(number, -INF), outward(number, INF)
    assert (Fraction(low) if math.isfinite(low) else low) <= number
    assert high == INF or Fraction(high) >= number
    assert low <= high <= math.nextafter(low, INF)


coefficient = st.integers(-3, 3).map(float)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(coefficient, coefficient, coefficient, coefficient), min_size=1, max_size=4),
    points=st.lists(st.tuples(*[st.integers(-8, 8).map(lambda n: n / 8)] * 3), max_size=20),
)
def test_no_point_of_the_set_is_lost(rows, points):
    atoms = [atom for *factors, constant in rows if len((atom := row(*factors, constant=constant / 4)).terms) > 1]
    lower, upper = tighten(np.full(3, -1.0), np.ones(3), atoms)
    for point in points:
        if all(sum(f * point[v] for v, f in atom.terms) + atom.constant <= 0 for atom in atoms):
            assert (lower <= point).all()
            assert (upper >= point).all()
