"""Properties in VNN-LIB."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.errors import LingraftError
from lingraft.formats.vnnlib import property_of, read_vnnlib
from lingraft.formats.vnnlib_query import read_query

FUZZ = settings.get_profile("fuzz")

DECLARED = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOUNDED = DECLARED + "".join(f"(assert (<= X_{i} {i + 1}.5))\n(assert (>= X_{i} -1e-1))\n" for i in range(2))
WHOLE = BOUNDED + "(assert (or (and (<= Y_0 Y_1)) (and (>= (+ Y_0 (* 2 Y_1)) 3) (<= (- Y_1) 0.25))))\n"


@FUZZ
@given(data=st.data())
def test_damaged(fuzzed: Any, place: Path, data: st.DataObject) -> None:
    path = place / "x.vnnlib"
    content = fuzzed.bytes(data, WHOLE.encode())
    path.write_bytes(fuzzed.bytes(data, gzip.compress(content)) if data.draw(st.booleans()) else content)
    fuzzed.survive(lambda: read_vnnlib(path, 2, 2))


number = st.one_of(
    st.floats().map(repr), st.integers().map(str), st.sampled_from(["1e999", "-0", ".5", "5.", "1" * 400, "1e-999", "0x1"])
)  # fmt: skip
variable = st.sampled_from(["X_0", "X_1", "X_2", "Y_0", "Y_1", "X_-1", "Y_99999999999", "Z"])


def formulas_of(variable: st.SearchStrategy[str], relations: list[str]) -> st.SearchStrategy[str]:
    """Formulas of these variables and relations, most of which mean nothing."""

    def applied(heads: st.SearchStrategy[str], most: int) -> Callable[[st.SearchStrategy[str]], st.SearchStrategy[str]]:
        return lambda inner: st.tuples(heads, st.lists(inner, max_size=most), st.booleans()).map(
            lambda parts: f"({f' {parts[0]} '.join(parts[1])})" if parts[2] else f"({parts[0]} {' '.join(parts[1])})"
        )

    term = st.recursive(number | variable, applied(st.sampled_from("+-*/"), 3), max_leaves=6)
    atom = st.tuples(st.sampled_from(relations), term, term).map(lambda parts: f"({' '.join(parts)})")
    return st.recursive(atom, applied(st.sampled_from(["and", "or", "not"]), 4), max_leaves=8)


formula = formulas_of(variable, ["<=", ">=", "<", "="])


@FUZZ
@given(formulas=st.lists(formula, max_size=4))
def test_formulas(fuzzed: Any, place: Path, formulas: list[str]) -> None:
    path = place / "x.vnnlib"
    path.write_text(BOUNDED + "\n".join(f"(assert {each})" for each in formulas))
    found = fuzzed.survive(lambda: read_vnnlib(path, 2, 2))
    assert found is None or all((box.lower <= box.upper).all() for box in found.boxes)


def disjunction(count: int) -> str:
    return f"(or {' '.join(f'(<= Y_0 {i})' for i in range(count))})"


@pytest.mark.parametrize(
    "formula",
    [
        "(" * 100_000,
        "(and " * 49 + "(<= Y_0 1)" + ")" * 49,
        f"(and {' '.join([disjunction(10)] * 10)})",
        # few conjunctions, but each of many rows
        f"(and {disjunction(5_000)} {' '.join(f'(>= Y_1 {i})' for i in range(5_000))})",
        "(<= Y_0 " + "(+ 1 " * 45 + "1" + ")" * 45 + ")",
        "(<= Y_0 " + "9" * 10**6 + ")",
        "; " + "x" * 10**7,
    ],
    ids=["parentheses", "nested", "product", "rows", "sum", "digits", "comment"],
)
def test_hostile(fuzzed: Any, place: Path, formula: str) -> None:
    path = place / "x.vnnlib"
    path.write_text(f"{BOUNDED}(assert {formula})")
    found = fuzzed.survive(lambda: read_vnnlib(path, 2, 2))
    assert found is None or "(and (and" in formula or "(+ 1" in formula, "it was read"


def test_many_asserted_rows(fuzzed: Any, place: Path) -> None:
    path = place / "x.vnnlib"
    rows = "\n".join(f"(assert (>= Y_1 {i}))" for i in range(5_000))
    path.write_text(f"{BOUNDED}{rows}\n(assert {disjunction(5_000)})")
    with pytest.raises(LingraftError, match="coefficients"):
        read_vnnlib(path, 2, 2)


def test_many_boxes_of_many_inputs(fuzzed: Any, place: Path) -> None:
    path = place / "x.vnnlib"
    path.write_text(
        DECLARED_2.replace("[1,2]", "[1,99999]")
        + "(assert (or " + " ".join(f"(and (<= X[0,0] {i}) (>= X[0,1] 1))" for i in range(5_000)) + "))"
    )  # fmt: skip
    with pytest.raises(LingraftError, match="coefficients"):
        read_2(path)


def test_packed_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "x.vnnlib.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 24)) * 256)
    with pytest.raises(LingraftError, match="more than"):
        read_vnnlib(path, 2, 2)


# Version 2.0

DECLARED_2 = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1,2] "in") (declare-hidden H float32 [] "h") (declare-output Y real [2] "y"))
(declare-network g (isomorphic-to f) (declare-input Z real [2]) (declare-output W real [2]))
"""
BOUNDED_2 = DECLARED_2 + "".join(
    f"(assert (<= {name} 1.5))\n(assert (>= {name} -1e-1))\n" for name in ("X[0,0]", "X[0,1]", "Z[0]", "Z[1]")
)
WHOLE_2 = BOUNDED_2 + (
    "(assert (== X[0,0] Z[1]))(assert (<= (+ X[0,1] (* 2 Z[0])) 1))\n"
    "(assert (or (and (< Y[0] W[1])) (and (!= (+ Y[0] (* 2 X[0,0])) 3) (>= (- H) 0.25))))\n"
)


def read_2(path: Path) -> Any:
    return property_of(read_query(path))


@FUZZ
@given(data=st.data())
def test_damaged_2(fuzzed: Any, place: Path, data: st.DataObject) -> None:
    path = place / "x.vnnlib"
    path.write_bytes(fuzzed.bytes(data, WHOLE_2.encode()))
    fuzzed.survive(lambda: read_2(path))


variable_2 = st.sampled_from(
    ["X[0,0]", "X[0,1]", "Z[0]", "Z [ 1 ]", "Y[0]", "W[1]", "H", "H[]", "X", "X[0,2]", "Z[-1]", "Q[0]", "Y[", '"y"']
)
formula_2 = formulas_of(variable_2, ["<=", ">=", "<", ">", "==", "!=", "="])


@FUZZ
@given(formulas=st.lists(formula_2, max_size=4))
def test_formulas_2(fuzzed: Any, place: Path, formulas: list[str]) -> None:
    path = place / "x.vnnlib"
    path.write_text(BOUNDED_2 + "\n".join(f"(assert {each})" for each in formulas))
    found = fuzzed.survive(lambda: read_2(path))
    assert found is None or all((box.lower <= box.upper).all() for box in found.boxes)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "(assert " + "(and " * 48 + "(<= Y[0] 1)" + ")" * 49,
        f"(assert (and {' '.join(['(or (< Y[0] 0) (!= Y[1] 1))'] * 20)}))",
        "(assert (and " + "(!= Y[0] W[0])" * 30 + "))",
        "(assert (<= (+ " + "Y[0] " * 10**5 + ") 1))",
        "(assert (<= Y[" + "0" * 10**6 + "] 1))",
        "(assert (<= Y[0] " + "9" * 10**6 + "))",
        '(assert "' + "x" * 10**6,
        "".join(f"(assert (== X[0,{i % 2}] Z[{i // 2 % 2}]))\n" for i in range(10**4)),
        "".join(f"(assert (<= (+ X[0,0] (* {i} Z[0])) {i}))\n" for i in range(2_000)),
    ],
    ids=[
        "parentheses",
        "nested",
        "product",
        "unequal",
        "sum",
        "index",
        "digits",
        "quote",
        "equal-inputs",
        "between-inputs",
    ],
)
def test_hostile_2(fuzzed: Any, place: Path, text: str) -> None:
    path = place / "x.vnnlib"
    path.write_text(BOUNDED_2 + text)
    fuzzed.survive(lambda: read_2(path))
