"""VNN-LIB 2.0 in: every construct of its grammar, and that mistakes are found."""

import time
from pathlib import Path

import numpy as np
import pytest

from lingraft import LingraftError
from lingraft.formats import vnnlib_query
from lingraft.formats.vnnlib import property_of, read_vnnlib
from lingraft.formats.vnnlib_query import Query, read_query

VERSION = "(vnnlib-version <2.0>)\n"
ONE = VERSION + "(declare-network N (declare-input X float32 [1, 2]) (declare-output Y real [2]))\n"
BOUNDED = ONE + "(assert (and (<= X[0,0] 1) (>= X[0,0] -1)))\n(assert (<= X[0,1] 2.0))\n(assert (>= X [0, 1] 0))\n"
TWO = """; two networks; with "quotes" in a comment
(vnnlib-version <2.0>)
(declare-network f
    (declare-input X Real [1,2] "image")
    (declare-hidden H float64 [2] "relu (1); x") ; its name has everything in it
    (declare-output Y real [2] "out")
)
(declare-network g
    (isomorphic-to f)
    (declare-input Z real [2])
    (declare-output W real [])
)
(assert (and (<= X[0,0] 2) (>= X[0,0] -2) (<= X[0,1] 2) (>= X[0,1] -2)))
(assert (<= Z[0] 2)) (assert (>= Z[0] -2))
(assert (<= Z[1] 2))
(assert (>= Z[1] -2))
"""


@pytest.fixture
def query(tmp_path: Path):
    """query(text): the query of a file with this text."""

    def go(text: str) -> Query:
        (tmp_path / "p.vnnlib").write_text(text)
        return read_query(tmp_path / "p.vnnlib")

    return go


def test_declarations(query):
    f, g = query(TWO).networks
    assert (f.name, f.like, g.name, g.like, g.same) == ("f", None, "g", "f", False)
    ((x,), (h,), (y,)) = f.inputs, f.hidden, f.outputs
    assert (x.name, x.type, x.shape, x.onnx) == ("X", "Real", (1, 2), "image")
    assert (h.name, h.shape, h.onnx, y.onnx) == ("H", (2,), "relu (1); x", "out")
    assert g.outputs[0].shape == ()
    assert [x.element(1), g.outputs[0].element(0)] == ["X[0,1]", "W"]
    equal = TWO.replace("isomorphic-to", "equal-to")
    assert query(equal).networks[1].same


def test_a_plain_property_is_read_as_one_of_version_1(query, tmp_path):
    query(BOUNDED + "(assert (or (<= Y[0] Y[1]) (and (>= (* 2 Y[0]) 3) (<= (- Y[1]) 0.25))))")
    (box,) = read_vnnlib(tmp_path / "p.vnnlib", 2, 2).boxes
    assert (box.lower.tolist(), box.upper.tolist(), box.open_ends) == ([-1, 0], [1, 2], None)
    first, second = box.unsafe
    assert (first.coefficients.tolist(), first.constants.tolist(), first.strict) == ([[1, -1]], [0], None)
    assert (second.coefficients.tolist(), second.constants.tolist()) == ([[-2, 0], [0, -1]], [3, -0.25])


def test_strict_bounds_are_open_ends(query):
    asked = query(ONE + "(assert (and (< X[0,0] 1) (>= X[0,0] 0) (<= X[0,1] 1) (> X[0,1] 0) (<= X[0,0] 1)))")
    (box,) = property_of(asked).boxes
    assert box.upper.tolist() == [1, 1]
    inside = [box.contains(np.array(x)) for x in ([0, 0.5], [1, 0.5], [0.5, 0], [0.5, 1])]
    assert inside == [True, False, False, True]


def test_equal_inputs_are_one(query):
    asked = query(TWO + "(assert (== X[0,0] Z[1]))(assert (and (== Z[1] X[0,1])))(assert (<= (+ X[0,0] Z[1]) 1))")
    assert asked.copies.tolist() == [0, 0, 1, 0]
    assert asked.inputs == 2
    (box,) = property_of(asked).boxes
    assert box.upper.tolist() == [0.5, 2], "twice the same input is at most 1"
    assert not property_of(query(TWO + "(assert (== X[0,0] Z[1]))(assert (< X[0,0] Z[1]))")).boxes
    same = property_of(query(TWO + "(assert (== X[0,0] Z[1]))(assert (or (< X[0,0] Z[1]) (<= Y[0] 0)))")).boxes
    assert [len(box.unsafe) for box in same] == [1]


def test_contradictions_leave_no_box(query):
    gap = "(assert (and (> Y[0] (+ Y[1] 0.05)) (< Y[0] (- Y[1] 0.05))))"
    assert property_of(query(BOUNDED + gap)).boxes == []
    assert property_of(query(BOUNDED + "(assert (and (> Y[0] Y[1]) (<= Y[0] Y[1])))")).boxes == []
    assert len(property_of(query(BOUNDED + "(assert (and (>= Y[0] Y[1]) (<= Y[0] Y[1])))")).boxes) == 1
    assert property_of(query(BOUNDED + "(assert (> X[0,0] 1))")).boxes == []
    assert property_of(query(BOUNDED + "(assert (> X[0,0] 3))")).boxes == []


def test_constants_are_compared(query):
    assert len(property_of(query(BOUNDED + "(assert (or (< 1 1) (!= 1 2)))(assert (<= Y[0] Y[0]))")).boxes) == 1
    assert property_of(query(BOUNDED + "(assert (and (<= Y[0] 1) (== 1 2)))")).boxes == []


def test_constraints_between_inputs_bound_them(query):
    """Z has no bounds of its own but those that X gives it."""
    text = TWO.split("(assert (<= Z[0]")[0]
    between = "(assert (and (<= Z[0] X[0,0]) (>= Z[0] (- X[0,0] 1)) (<= (+ Z[1] X[0,1]) 1) (>= Z[1] (- X[0,1]))))"
    (box,) = property_of(query(text + between)).boxes
    assert box.lower.tolist() == [-2, -2, -3, -2]
    assert box.upper.tolist() == [2, 2, 2, 3]
    diamond = "".join(f"(<= (+ (* {a} Z[0]) (* {b} Z[1])) 1)" for a in (1, -1) for b in (1, -1))
    (box,) = property_of(query(text + f"(assert (and {diamond}))")).boxes
    assert (box.lower[2:].tolist(), box.upper[2:].tolist()) == ([-1, -1], [1, 1])
    with pytest.raises(LingraftError, match=r"Z\[1\] has no upper bound"):
        property_of(query(text + "(assert (and (<= Z[0] X[0,0]) (>= Z[0] X[0,1]) (>= Z[1] 0)))"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("(vnnlib-version <3.0>)", "VNN-LIB 3.0", id="version"),
        pytest.param("(vnnlib-version <2.0>)", "declares no network", id="nothing"),
        pytest.param(VERSION * 2 + ONE[len(VERSION) :] + VERSION, "not understood", id="version-again"),
        pytest.param(BOUNDED + "(assert (<= (* X[0,0] X[0,1]) 1))", "line 6: a product of variables", id="product"),
        pytest.param(BOUNDED + "(assert (<= (/ X[0,0] 2) 1))", "line 6: .*not understood", id="division"),
        pytest.param(BOUNDED + "(assert (not (<= Y[0] 1)))", "line 6: .*not understood", id="not"),
        pytest.param(BOUNDED + "(assert (<= Q[0] 1))", "line 6: Q is not declared", id="undeclared"),
        pytest.param(BOUNDED + "(assert (<= X[0] 1))", r"line 6: X\[0\] is no element", id="partial"),
        pytest.param(BOUNDED + "(assert (<= X 1))", "line 6: X is no element", id="whole"),
        pytest.param(BOUNDED + "(assert (<= X[0,2] 1))", "outside of X", id="outside"),
        pytest.param(BOUNDED + "(assert (<= X[0,-1] 1))", "not understood", id="negative"),
        pytest.param(BOUNDED + "(assert (<= X[0,99999999999999] 1))", "is no element", id="huge-index"),
        pytest.param(BOUNDED + "(assert (<= X[0, 1))", "line 6", id="open-bracket"),
        pytest.param(BOUNDED + "(declare-const X_0 Real)", "not understood", id="old-declaration"),
        pytest.param(BOUNDED + ONE[len(VERSION) :], "before anything is asserted", id="late"),
        pytest.param(ONE.replace("Y real", "X real"), "X was declared before", id="twice"),
        pytest.param(ONE.replace("float32", "int64"), "type int64", id="type"),
        pytest.param(ONE.replace("[2]", "[0]"), "no shape", id="empty-shape"),
        pytest.param(ONE.replace("[2]", "[2,]"), "no shape", id="comma"),
        pytest.param(ONE.replace("[2]", "[99999,9999999]"), "values are declared", id="huge"),
        pytest.param(ONE.replace("[2]", ""), "expected", id="no-shape"),
        pytest.param(ONE.replace("[2])", '[2] "")'), "expected", id="empty-name"),
        pytest.param(ONE.replace("declare-output", "declare-hidden"), "needs its name", id="hidden"),
        pytest.param(ONE.replace("(declare-output Y real [2])", ""), "an input and an output", id="no-output"),
        pytest.param(
            VERSION + "(declare-network N (declare-output Y real [2]) (declare-input X real [2]))", "inputs come first",
            id="order",
        ),
        pytest.param(
            VERSION + '(declare-network N (declare-input X real [2] "b") (declare-input Z real [2])'
            " (declare-output Y real [2]))", "all inputs or none", id="names-of-some-inputs",
        ),
        pytest.param(
            VERSION + "(declare-network N (declare-input X real [2]) (declare-output Y real [2])"
            ' (declare-output W real [2] "a"))', "all outputs or none", id="names-of-some-outputs",
        ),
        pytest.param(ONE.replace("N (", "N (equal-to M) ("), "declared before", id="equal-to-nothing"),
        pytest.param(ONE + ONE[len(VERSION) :], "N was declared before", id="network-twice"),
    ],
)  # fmt: skip
def test_mistakes(query, text, message):
    with pytest.raises(LingraftError, match=rf"p\.vnnlib, .*({message})"):
        query(text)


def test_what_read_vnnlib_does_not_read(query, tmp_path):
    for text, message in (
        (BOUNDED + "(assert (<= X[0,0] X[0,1]))", "line 6: a constraint between inputs is"),
        (BOUNDED + "(assert (<= X[0,0] Y[1]))", "line 6: a constraint between inputs and outputs"),
        (TWO, "several networks"),
    ):
        query(text)
        with pytest.raises(LingraftError, match=message):
            read_vnnlib(tmp_path / "p.vnnlib", 2, 2)


def test_too_many_values(query, monkeypatch):
    monkeypatch.setattr(vnnlib_query, "MAX_ELEMENTS", 3)
    with pytest.raises(LingraftError, match="more than 3 values"):
        query(ONE)


def test_reading_takes_time_in_proportion(query):
    seconds = []
    for size in (1_000, 20_000):
        lines = [f"(assert (<= X[0,{i}] 1.5))\n(assert (>= X[0,{i}] -1.5))" for i in range(size)]
        text = ONE.replace("[1, 2]", f"[1,{size}]") + "\n".join(lines)
        start = time.process_time()
        property_of(query(text))
        seconds.append(time.process_time() - start)
    assert seconds[1] < 60 * seconds[0] + 0.5
