"""What is computed of constants alone is what onnxruntime computes."""

import numpy as np
import onnxruntime
import pytest
from handmade_onnx import floats, onnx_bytes
from onnx import helper

from lingraft.checker.evaluation import outputs
from lingraft.checker.onnx_reader import network_of
from lingraft.errors import LingraftError

MAKE = helper.make_node


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(-9, 9, 1), (-9, -9, -1), (9, -9, -1), (-1, -9, -2), (2, -1, 1), (3, 0, -1), (-9, 9, 3), (1, 2**62, 2), (-9, 3, -1)],
)  # fmt: skip
def test_slices_of_constants_are_onnxruntimes(start: int, end: int, step: int) -> None:
    """Also from before the beginning, where NumPy gives nothing and ONNX the first number; broadcasting hid that."""
    nodes = [MAKE("Slice", ["c", "s", "e", "a", "z"], ["d"]), MAKE("Add", ["x", "d"], ["y"])]
    numbers = {"s": start, "e": end, "a": 0, "z": step}
    weights = {"c": floats(4), **{name: np.array([n]) for name, n in numbers.items()}}
    data, x = onnx_bytes(nodes, [1, 4], weights), np.zeros((1, 4), np.float32)
    try:
        expected = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    except Exception:  # what cannot be added to four numbers
        expected = np.zeros(0)
    if expected.shape != (1, 4):
        with pytest.raises(LingraftError):
            network_of(data, "made")
    else:
        np.testing.assert_array_equal(outputs(network_of(data, "made"), np.zeros(4)), expected[0])


def test_a_slice_that_is_not_empty_is_seen_where_it_is_joined() -> None:
    """Two numbers, of which NumPy has one; that would be added to both outputs."""
    nodes = [MAKE("Slice", ["c", "s", "s", "a", "z"], ["d"]), MAKE("Concat", ["d", "e"], ["f"], axis=0), MAKE("Add", ["x", "f"], ["y"])]  # fmt: skip
    weights = {"c": floats(4), "e": np.full(1, 9, np.float32), "s": np.array([-9]), "a": np.array([0]), "z": np.array([-1])}  # fmt: skip
    data = onnx_bytes(nodes, [1, 2], weights)
    (expected,) = onnxruntime.InferenceSession(data).run(None, {"x": np.zeros((1, 2), np.float32)})
    assert expected[0].tolist() == [float(weights["c"][0]), 9.0]
    np.testing.assert_array_equal(outputs(network_of(data, "made"), np.zeros(2)), expected[0])
