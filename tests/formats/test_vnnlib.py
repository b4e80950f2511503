"""VNN-LIB in: what properties mean, and that mistakes in them are found."""

import gzip
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.formats import vnnlib_syntax
from lingraft.formats.vnnlib import Property, read_vnnlib
from lingraft.formats.vnnlib_write import write_instances, write_vnnlib

DECLARED = """; a comment (with parentheses
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real)
"""
BOUNDED = DECLARED + "(assert (>= X_0 -1.5e-1)) (assert (<= X_0 .5))\n(assert (and (<= X_1 2) (<= 1 X_1)))\n"


@pytest.fixture
def read(tmp_path):
    """read(text): the property of a file with this text, over two inputs and two outputs."""

    def go(text: str, inputs: int = 2, outputs: int = 2) -> Property:
        path = tmp_path / "p.vnnlib"
        path.write_text(text)
        return read_vnnlib(path, inputs, outputs)

    return go


def rows(conjunction):
    return [[*row, constant] for row, constant in zip(conjunction.coefficients, conjunction.constants, strict=True)]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_end_in_any_way(tmp_path, ending):
    """A comment ends with its line; with a carriage return alone, it used to take the next line with it."""
    path = tmp_path / "p.vnnlib"
    path.write_bytes(
        (BOUNDED + "; below\n(assert (<= Y_0 1)) ; one\n(assert (<= Y_1 2))\n").replace("\n", ending).encode()
    )
    (box,) = read_vnnlib(path, 2, 2).boxes
    assert rows(box.unsafe[0]) == [[1, 0, -1], [0, 1, -2]]
    assert box.lower.tolist() == [-0.15, 1]


def test_box_and_outputs(read):
    (box,) = read(BOUNDED + "(assert (>= Y_0 Y_1))(assert (<= Y_0 3))").boxes
    assert box.lower.tolist() == [-0.15, 1]
    assert box.upper.tolist() == [0.5, 2]
    assert box.lower.dtype == np.float64
    (conjunction,) = box.unsafe
    assert rows(conjunction) == [[-1, 1, 0], [1, 0, -3]]
    assert conjunction.holds(np.array([2.0, 1.0]))
    assert conjunction.holds(np.array([2.0, 2.0]))
    assert not conjunction.holds(np.array([4.0, 1.0]))
    assert not conjunction.holds(np.array([0.0, 1.0]))


def test_bounds_are_the_tightest_given(read):
    (box,) = read(BOUNDED + "(assert (<= X_0 0.25))(assert (<= X_0 0.75))(assert (>= Y_0 Y_1))").boxes
    assert box.upper[0] == 0.25


def test_disjunction_of_outputs_stays_in_one_box(read):
    (box,) = read(BOUNDED + "(assert (or (and (>= Y_0 1)) (>= Y_1 1) (and (<= Y_0 0) (<= Y_1 0))))").boxes
    assert [rows(c) for c in box.unsafe] == [[[-1, 0, 1]], [[0, -1, 1]], [[1, 0, 0], [0, 1, 0]]]


def test_disjunction_of_boxes(read):
    text = DECLARED + (
        "(assert (<= Y_0 Y_1))\n(assert (>= X_1 0))(assert (<= X_1 1))\n"
        "(assert (or (and (>= X_0 0) (<= X_0 1) (>= Y_0 5)) (and (>= X_0 2) (<= X_0 3)) (and (>= X_0 0) (<= X_0 1))))"
    )
    first, second = read(text).boxes
    assert (first.lower[0], first.upper[0]) == (0, 1)
    assert [rows(c) for c in first.unsafe] == [[[1, -1, 0], [-1, 0, 5]], [[1, -1, 0]]]
    assert (second.lower[0], second.upper[0]) == (2, 3)
    assert [rows(c) for c in second.unsafe] == [[[1, -1, 0]]]


def test_two_disjunctions_about_inputs_multiply_and_drop_what_is_empty(read):
    text = DECLARED + (
        "(assert (or (and (>= X_0 0) (<= X_0 1)) (and (>= X_0 2) (<= X_0 3))))"
        "(assert (or (<= X_0 1.5) (>= X_0 2.5)))(assert (>= X_1 0))(assert (<= X_1 1))(assert (>= Y_0 0))"
    )
    assert [(box.lower[0], box.upper[0]) for box in read(text).boxes] == [(0, 1), (2.5, 3)]


def test_conjunction_of_disjunctions_is_unfolded(read):
    (box,) = read(BOUNDED + "(assert (and (or (<= Y_0 0) (<= Y_0 1)) (or (<= Y_1 0) (<= Y_1 1))))").boxes
    assert len(box.unsafe) == 4


def test_linear_terms(read):
    text = BOUNDED + "(assert (<= (+ (* 2 Y_0) (* Y_1 -0.5) 1) (- Y_0 Y_1 (- 4))))(assert (>= (* 2 X_1) 3))"
    (box,) = read(text).boxes
    assert rows(box.unsafe[0]) == [[1, 0.5, -3]]
    assert box.lower[1] == 1.5


def test_property_without_outputs_is_violated_by_any_input(read):
    (box,) = read(BOUNDED).boxes
    assert box.unsafe[0].coefficients.shape == (0, 2)
    assert box.unsafe[0].holds(np.zeros(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(BOUNDED + "(assert (<= Y_0 Y_2))", "line 7: Y_2 is not declared", id="undeclared"),
        pytest.param(BOUNDED + "(declare-const X_0 Real)", "line 7: X_0 was declared before, on line 2", id="twice"),
        pytest.param("(declare-const Z_0 Real)", "line 1: expected", id="other-variable"),
        pytest.param("(declare-const X_0 Int)", "line 1: expected", id="integer"),
        pytest.param("(declare-fun X_0 () Real)", "line 1: .*declare-fun", id="command"),
        pytest.param(DECLARED.replace("X_1", "X_2"), "X_1 is not declared", id="gap"),
        pytest.param(DECLARED + "(assert (<= X_0 1))(assert (>= X_0 0))", "X_1 has no lower bound", id="no-bound"),
        pytest.param(
            DECLARED + "(assert (>= X_0 0))(assert (>= X_1 0))", "X_0 has no upper bound", id="no-upper-bound"
        ),
        pytest.param(BOUNDED + "\n(assert (<= X_1 0.5))", "line 8: the bounds of X_1 contradict", id="contradiction"),
        pytest.param(
            BOUNDED + "(assert (or (<= X_1 0.5) (<= Y_0 0)))", "line 7: the bounds of X_1", id="contradiction-in-a-case"
        ),
        pytest.param(BOUNDED + "(assert (<= (* Y_0 Y_1) 1))", "line 7: a product of variables", id="product"),
        pytest.param(BOUNDED + "(assert (<= (/ Y_0 2) 1))", "line 7: .*not understood", id="division"),
        pytest.param(BOUNDED + "(assert (<= X_0 X_1))", "line 7: a constraint between inputs", id="inputs"),
        pytest.param(BOUNDED + "(assert (<= X_0 Y_1))", "line 7: .*inputs and outputs", id="mixed"),
        pytest.param(BOUNDED + "(assert (<= 1 2))", "line 7: a constraint without variables", id="constants"),
        pytest.param(BOUNDED + "(assert (<= Y_0 Y_0))", "line 7: a constraint without variables", id="cancels"),
        pytest.param(BOUNDED + "(assert (< Y_0 1))", "line 7: .*not understood", id="strict"),
        pytest.param(BOUNDED + "(assert (<= Y_0 1 2))", "line 7: <= takes two sides", id="three-sides"),
        pytest.param(BOUNDED + "(assert (<= Y_0 nan))", "line 7: 'nan'", id="nan"),
        pytest.param(BOUNDED + "(assert (<= Y_0 1e999))", "line 7: a number is too large", id="overflow"),
        pytest.param(BOUNDED + "(assert (<= Y_0 1)", "the file ends inside the list begun on line 7", id="open"),
        pytest.param(BOUNDED + "(assert (<= Y_0 1)))", "line 7: a closing parenthesis", id="closed"),
        pytest.param(BOUNDED + "assert", "line 7: 'assert' outside", id="outside"),
        pytest.param(BOUNDED + "(assert)", "line 7", id="empty-assert"),
        pytest.param(BOUNDED + "(assert Y_0)", "line 7", id="no-formula"),
        pytest.param(BOUNDED + "(assert (or))", "line 7", id="empty-or"),
        pytest.param(BOUNDED + "()", "line 7", id="nothing"),
        pytest.param(BOUNDED + "(" * 100_000, "parentheses are open", id="deep"),
        pytest.param(
            BOUNDED + "(assert (or (<= Y_0 0) (<= Y_1 0)))" * 30, "more than 100,000 conjunctions", id="explosion"
        ),
        pytest.param(
            BOUNDED + "(assert (and " + "(or (<= Y_0 0) (<= Y_1 0))" * 30 + "))",
            "more than 100,000",
            id="explosion-in-one",
        ),
        pytest.param("", "0 inputs, but the network has 2", id="empty-file"),
    ],
)
def test_mistakes(read, text, message):
    with pytest.raises(LingraftError, match=rf"p\.vnnlib, .*{message}"):
        read(text)


@pytest.mark.parametrize(("inputs", "outputs", "message"), [(3, 2, "2 inputs.*has 3"), (2, 10, "2 outputs.*has 10")])
def test_property_of_another_network(read, inputs, outputs, message):
    with pytest.raises(LingraftError, match=message):
        read(BOUNDED + "(assert (>= Y_0 Y_1))", inputs, outputs)


def test_packed_files(tmp_path):
    path = tmp_path / "p.vnnlib.gz"
    content = gzip.compress((BOUNDED + "(assert (>= Y_0 Y_1))").encode())
    path.write_bytes(content)
    assert len(read_vnnlib(path, 2, 2).boxes) == 1
    path.write_bytes(content[:-10])
    with pytest.raises(LingraftError, match="cannot read"):
        read_vnnlib(path, 2, 2)


def test_unreadable_files(tmp_path, monkeypatch):
    with pytest.raises(LingraftError, match="cannot read"):
        read_vnnlib(tmp_path / "nowhere.vnnlib", 2, 2)
    with pytest.raises(LingraftError, match="cannot read"):
        read_vnnlib(tmp_path, 2, 2)
    path = tmp_path / "p.vnnlib"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LingraftError, match="not text"):
        read_vnnlib(path, 2, 2)
    path.write_bytes(gzip.compress(b" " * 1000))
    monkeypatch.setattr(vnnlib_syntax, "MAX_BYTES", 100)
    with pytest.raises(LingraftError, match="more than the 100 bytes"):
        read_vnnlib(path, 2, 2)


TOKENS = [
    "(",
    ")",
    "assert",
    "and",
    "or",
    "<=",
    ">=",
    "+",
    "-",
    "*",
    "X_0",
    "X_1",
    "Y_0",
    "Y_1",
    "1",
    "-2.5",
    "\n",
    "%",
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=40))
def test_any_text_is_a_property_or_a_mistake(read, tokens):
    try:
        found = read(BOUNDED + " ".join(tokens))
    except LingraftError:
        return
    assert all((box.lower <= box.upper).all() for box in found.boxes)


bounds = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(bounds, bounds), min_size=1, max_size=6), classes=st.integers(2, 5), data=st.data())
def test_what_is_written_is_read_back_exactly(tmp_path, pairs, classes, data):
    label = data.draw(st.integers(0, classes - 1))
    lower, upper = (np.array(side, np.float32) for side in zip(*map(sorted, pairs), strict=True))
    path = tmp_path / "p.vnnlib"
    write_vnnlib(path, lower, upper, label, classes)
    (box,) = read_vnnlib(path, len(pairs), classes).boxes
    assert np.array_equal(box.lower, lower)
    assert np.array_equal(box.upper, upper)
    y = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=classes, max_size=classes)), float)
    others = np.delete(y, label)
    assert any(c.holds(y) for c in box.unsafe) == bool((others >= y[label]).any())


def test_tiny_bounds_are_written_without_an_exponent(tmp_path):
    write_vnnlib(tmp_path / "p.vnnlib", np.array([-1e-30]), np.array([1e-30]), 0, 2)
    assert "1e-" not in (tmp_path / "p.vnnlib").read_text()
    assert read_vnnlib(tmp_path / "p.vnnlib", 1, 2).boxes[0].upper[0] == 1e-30


@pytest.mark.parametrize(
    ("lower", "upper", "label"),
    [([0.0], [np.inf], 0), ([np.nan], [1.0], 0), ([2.0], [1.0], 0), ([0.0, 0.0], [1.0], 0), ([0.0], [1.0], 2)],
)
def test_impossible_properties_are_not_written(tmp_path, lower, upper, label):
    with pytest.raises(LingraftError):
        write_vnnlib(tmp_path / "p.vnnlib", np.array(lower), np.array(upper), label, 2)
    assert not list(tmp_path.iterdir())


def test_instances(tmp_path):
    path = write_instances(tmp_path, "onnx/net.onnx", ["vnnlib/a.vnnlib", "vnnlib/b.vnnlib"], 60.0)
    assert path.read_text() == "onnx/net.onnx,vnnlib/a.vnnlib,60\nonnx/net.onnx,vnnlib/b.vnnlib,60\n"


def test_reading_takes_time_in_proportion(tmp_path):
    """Twenty times the inputs must not take more than some sixty times as long."""
    seconds = []
    for size in (1_000, 20_000):
        write_vnnlib(tmp_path / "p.vnnlib", np.zeros(size), np.ones(size), 0, 10)
        start = time.process_time()
        read_vnnlib(tmp_path / "p.vnnlib", size, 10)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 60 * seconds[0] + 0.5


@pytest.mark.parametrize(
    "name", ["cifar_cnn_a_adv", "mnist_cnn_a_adv", "oval_base", "resnet2b", "cnn_b_fat", "cnn_b_graft50"]
)
def test_public_properties(problems_folder, name):
    problems = np.load(problems_folder / name / "problems.npz")
    for i, label in enumerate(problems["label"]):
        lower, upper = problems["lower"][i].ravel(), problems["upper"][i].ravel()
        (box,) = read_vnnlib(problems_folder / name / "vnnlib" / f"{i}.vnnlib.gz", lower.size, 10).boxes
        np.testing.assert_allclose(box.lower, lower, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(box.upper, upper, rtol=1e-7, atol=1e-8)
        expected = [np.eye(10)[label] - np.eye(10)[other] for other in range(10) if other != label]
        assert np.array_equal([c.coefficients[0] for c in box.unsafe], expected)
        assert all(c.constants.tolist() == [0] for c in box.unsafe)
