"""What formulas of VNN-LIB 2.0 mean: evaluated here as they are written, and compared with the boxes and sets."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.formats.vnnlib import Property, property_of
from lingraft.formats.vnnlib_query import Query, read_query

NAMES = ["X[0,0]", "X[0,1]", "Z[0]", "Z[1]", "H[0]", "H[1]", "Y[0]", "Y[1]", "W"]
INPUTS = 4
TWO = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1,2]) (declare-hidden H real [2] "h") (declare-output Y real [2]))
(declare-network g (declare-input Z real [2]) (declare-output W real []))
""" + "".join(f"(assert (and (<= {name} 2) (>= {name} -2)))\n" for name in NAMES[:INPUTS])


def holds(query: Query, found: Property, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a point, all declared inputs and computed values, is in the boxes and sets."""
    free = np.zeros(query.inputs)
    free[query.copies] = x
    if not np.array_equal(free[query.copies], x):
        return False
    values = np.concatenate([y, free]) if found.with_inputs else y
    return any(box.contains(free) and any(c.holds(values) for c in box.unsafe) for box in found.boxes)


number = st.integers(-4, 4).map(lambda n: Fraction(n, 2))
leaf = st.one_of(number, st.sampled_from(NAMES))
linear = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(st.just("+"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("-"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("*"), st.tuples(number, inner).map(list)),
    ),
    max_leaves=5,
)
comparison = st.tuples(st.sampled_from(["<=", ">=", "<", ">", "==", "!="]), st.tuples(linear, linear).map(list))
formula = st.recursive(
    comparison,
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=5,
)
point = st.lists(st.integers(-4, 4).map(lambda n: n / 2), min_size=len(NAMES), max_size=len(NAMES))


def written(item) -> str:
    if isinstance(item, tuple):
        return f"({item[0]} {' '.join(map(written, item[1]))})"
    return item if isinstance(item, str) else f"{float(item)}"


def between(item) -> str:
    """The same with operators between what they are about, where there is more than one."""
    if isinstance(item, tuple):
        parts = list(map(between, item[1]))
        return f"({f' {item[0]} '.join(parts)})" if len(parts) > 1 else f"({item[0]} {parts[0]})"
    return written(item)


def value(item, at) -> Fraction:
    if not isinstance(item, tuple):
        return at[item] if isinstance(item, str) else item
    head, parts = item[0], [value(part, at) for part in item[1]]
    if head == "*":
        return parts[0] * parts[1]
    if head == "-" and len(parts) == 1:
        return -parts[0]
    return sum(parts[1:], parts[0]) if head == "+" else parts[0] - sum(parts[1:])


def true(item, at) -> bool:
    head, parts = item
    if head in ("and", "or"):
        found = [true(part, at) for part in parts]
        return all(found) if head == "and" else any(found)
    left, right = (value(part, at) for part in parts)
    return {
        "<=": left <= right, ">=": left >= right, "<": left < right, ">": left > right,
        "==": left == right, "!=": left != right,
    }[head]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    formulas=st.lists(formula, min_size=1, max_size=3),
    points=st.lists(point, min_size=5, max_size=5),
    form=st.sampled_from([written, between]),
)
def test_a_point_is_in_the_sets_where_the_formulas_are_true(tmp_path_factory, formulas, points, form):
    path = tmp_path_factory.getbasetemp() / "semantics.vnnlib"
    path.write_text(TWO + "\n".join(f"(assert {form(each)})" for each in formulas))
    query = read_query(path)
    found = property_of(query)
    for values in points:
        at = dict(zip(NAMES, map(Fraction, values), strict=True))
        expected = all(true(each, at) for each in formulas)
        assert holds(query, found, np.array(values[:INPUTS]), np.array(values[INPUTS:])) == expected


ONE = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1]) (declare-output Y real [1]))
"""


@pytest.mark.parametrize(
    ("text", "x", "y", "expected"),
    [
        ("(assert (>= (+ (* 1e17 Y[0]) Y[0] (* -1e17 Y[0])) 0.5))", 0.0, 1.0, True),  # Y >= 0.5
        ("(assert (<= (+ Y[0] 1e17 1) 1e17))", 0.0, 0.0, False),  # Y <= -1
        ("(assert (<= (+ Y[0] 1e9 0.00000001) 1e9))", 0.0, 0.0, False),
        ("(assert (< (* 3.0 X[0]) 1.0))", 1 / 3, 0.0, True),  # the float64 next to a third is below it
        ("(assert (<= (* 10 X[0]) 1))", 0.1, 0.0, False),  # the one next to a tenth is above it
        ("(assert (>= (* 1e300 X[0]) 1e-300))", 0.0, 0.0, False),
    ],
)
def test_terms_are_added_and_divided_exactly(tmp_path: Path, text: str, x: float, y: float, expected: bool) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(f"{ONE}(assert (and (<= X[0] 2) (>= X[0] -2)))\n{text}\n")
    query = read_query(path)
    assert holds(query, property_of(query), np.array([x]), np.array([y])) == expected


@pytest.mark.parametrize(
    ("text", "x", "y", "expected"),
    [
        ("(1 - X[0] + Y[0] <= 0)", 2.0, 1.0, True),  # not 1 - (X + Y), which would be -2
        ("(1 - X[0] + Y[0] <= 0)", 1.0, 0.5, False),
        ("((2 * Y[0]) - X[0] >= 1)", 1.0, 1.0, True),
        ("(1 <= 2 * Y[0] - X[0] * 2 - 0.5 * 2)", 0.0, 1.0, True),
        ("(1 <= 2 * Y[0] - X[0] * 2 - 0.5 * 2)", 0.5, 1.0, False),
        ("(X[0] < 1 and Y[0] + X[0] > 1)", 0.5, 1.0, True),
        ("(X[0] < 1 and Y[0] + X[0] > 1)", 1.0, 1.0, False),
    ],
)
def test_products_come_before_sums_and_these_before_comparisons(
    tmp_path: Path, text: str, x: float, y: float, expected: bool
) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(f"{ONE}(assert (and (<= X[0] 2) (>= X[0] -2)))\n(assert {text})\n")
    query = read_query(path)
    assert holds(query, property_of(query), np.array([x]), np.array([y])) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(X[0] <= Y[0] <= 1)",
        "(X[0] <= Y[0] < 1)",
        "(X[0] <=)",
        "(<= X[0] <= 1)",
        "(X[0] <= 1 Y[0])",
        "(X[0] <= 1 and Y[0] <= 1 or Y[0] >= 2)",
    ],
)
def test_operators_between_that_have_no_one_meaning(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(f"{ONE}(assert {text})\n")
    with pytest.raises(LingraftError, match=r"not understood|takes two sides"):
        read_query(path)


def test_a_factor_that_would_be_rounded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(f"{ONE}(assert (and (<= X[0] 2) (>= X[0] -2)))\n(assert (<= (* 0.1 3 Y[0]) 0))\n")
    with pytest.raises(LingraftError, match=r"line 4.*more digits than float64"):
        property_of(read_query(path))
