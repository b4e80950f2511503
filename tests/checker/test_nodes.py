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
