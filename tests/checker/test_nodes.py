"""Nodes compute what they stand for."""

import numpy as np
import onnxruntime
import pytest
from handmade_onnx import floats, onnx_bytes
from onnx import helper

from lingraft.checker.network import inner
from lingraft.checker.nodes import Gather
from lingraft.checker.onnx_reader import network_of
from lingraft.checker.rows import Rows

MAKE = helper.make_node


def test_groups_are_convolutions_of_their_own() -> None:
    data = onnx_bytes(
        [MAKE("Conv", ["x", "w", "b"], ["y"], group=3, strides=[2, 1], dilations=[1, 2], pads=[1, 2, 0, 1])],
        [1, 6, 5, 6],
        {"w": floats(9, 2, 3, 2), "b": floats(9)},
    )
    network, x = network_of(data, "made"), floats(1, 6, 5, 6)
    (expected,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    node = network.nodes[1]
    np.testing.assert_allclose(node.forward(inner(x[0])).transpose(2, 0, 1), expected[0], rtol=1e-4, atol=1e-5)
    # one value, many values and all values back to the image give the same coefficients
    picked = np.array([0, 7, 40, node.size - 1])
    rows, _ = node.neurons(picked)
    whole = rows[0].whole(node.source).a[0]
    one = np.zeros((1, 4, node.size))
    one[0, np.arange(4), picked] = 1
    again, constant = node.back(Rows(one.reshape(1, 4, *node.shape)))
    np.testing.assert_allclose(again[0].a[0], whole, atol=1e-12)
    values = (whole * inner(x[0].astype(np.float64))).reshape(4, -1).sum(1) + constant[0]
    np.testing.assert_allclose(values, node.forward(inner(x[0].astype(np.float64))).reshape(-1)[picked], rtol=1e-9)


@pytest.mark.parametrize(
    ("index", "expected"),
    [([2, 0, 1], True), ([0, -1, 2], False), ([0, 0, 2], False), ([0, 1], False), ([-1, -1, 0, 1, 2], False)],
)
def test_a_permutation_has_every_input_once_and_no_zeros(index: list[int], expected: bool) -> None:
    assert Gather([0], (len(index),), (3,), np.array(index)).is_permutation is expected


@pytest.mark.parametrize(
    ("start", "step", "shape"),
    [
        ((0, 0), (2, 2), (4, 3, 2)),
        ((1, 0), (2, 2), (3, 3, 2)),
        ((1, 2), (1, 1), (6, 4, 2)),
        ((2, 1), (3, 4), (2, 2, 2)),
    ],
)
def test_rows_over_every_so_many_rows_and_columns_stay_windows(start, step, shape) -> None:
    source = (8, 7, 2)
    numbers = np.arange(np.prod(source)).reshape(source)
    index = numbers[start[0] :: step[0], start[1] :: step[1]][: shape[0], : shape[1]].reshape(-1)
    node = Gather([0], shape, source, index)
    assert node.steps == (start, step)
    generator = np.random.default_rng(0)
    origin = np.array([[0, 0], [shape[0] - 2, shape[1] - 2], [-1, shape[1] - 1]])  # the last reaches over two edges
    windows = Rows(generator.normal(size=(2, 3, 2, 2, 2)), origin)
    windows.clear_outside(shape)
    whole = windows.whole(shape)
    expected = (node.moves.T @ whole.a.reshape(6, -1).T).T.reshape(2, 3, *source)
    for rows in (windows, whole):
        (back,), constant = node.back(rows)
        assert np.array_equal(back.whole(source).a, expected)
        assert not constant.any()
        assert node.passed(rows) >= back.a[0, 0].size


@pytest.mark.parametrize(
    "index",
    [
        [0, 1, 4, 5, 8, 9],  # runs over the end of a row
        [4, 5, 0, 1, 8, 9],
        [1, 2, 5, 6, 9, 10],  # channels are moved
        [0, 1, -1, -1, 4, 5],
    ],
)
def test_other_moves_of_maps_are_not_taken_for_such(index: list[int]) -> None:
    assert Gather([0], (1, 3, 2), (3, 2, 2), np.array(index)).steps is None
