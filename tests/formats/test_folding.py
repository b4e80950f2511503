"""Constants are computed from constants, whatever the operation, as long as that is not too much."""

import numpy as np
import pytest
from handmade_onnx import assert_same, integers, weights
from onnx import helper

from lingraft import LingraftError
from lingraft.formats.onnx_import import load_onnx

FOLDED = {
    "Mod": ([("Mod", "a b", "s")], {"a": integers(1, 7), "b": integers(5, 4)}),
    "Range": ([("Range", "i j k", "r"), ("Slice", "r i1 j1", "s")], {"i": np.int64(1), "j": np.int64(9), "k": np.int64(2), "i1": integers(0), "j1": integers(2)}),
    "Where": ([("Equal", "a b", "e"), ("Where", "e a b", "s")], {"a": integers(1, 3), "b": integers(1, 4)}),
    "Min": ([("Max", "a b", "m"), ("Min", "m c", "s")], {"a": integers(-1, 3), "b": integers(1, 4), "c": integers(9, 9)}),
    "Tile": ([("Tile", "a b", "t"), ("Split", "t", "s u", {"axis": 0})], {"a": integers(1, 6), "b": integers(2)}),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDED)
def test_whatever_is_made_of_constants_is_computed(make_onnx, case):
    """The first number is the batch, the second how many rows there are; none of these operations is known otherwise."""
    nodes, constants = FOLDED[case]
    path = make_onnx(
        [*nodes, ("Concat", "s rest", "to", {"axis": 0}), ("Reshape", "x to", "y")],
        [1, 12],
        constants | {"rest": integers(-1)},
    )
    assert_same(path, load_onnx(path), 12)


REFUSED = {
    "random": ([("RandomNormal", "", "c", {"shape": [1, 2]})], {}, "random"),
    "Range": ([("Range", "i j k", "c")], {"i": np.float32(0), "j": np.float32(1e12), "k": np.float32(1)}, "too many"),
    "Tile": ([("Tile", "a b", "c")], {"a": weights(2, 2), "b": integers(1 << 20, 1 << 20)}, "too many"),
    "OneHot": ([("OneHot", "a b v", "c")], {"a": integers(1), "b": integers(1 << 40), "v": weights(2)}, "too many"),
    "slow": ([("ConstantOfShape", "a", "i"), ("ConstantOfShape", "b", "w"), ("Conv", "i w", "c")], {"a": integers(1, 1, 300, 300), "b": integers(1, 1, 30, 30)}, "too many"),
    "slow product": ([("ConstantOfShape", "a", "i"), ("MatMul", "i i", "j"), ("MatMul", "j j", "c")], {"a": integers(4000, 4000)}, "too many"),
    "unknown size": ([("NonZero", "a", "n"), ("Cast", "n", "c", {"to": 1})], {"a": weights(1, 2)}, "depends on the numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_constants_that_are_not_computed(make_onnx, case):
    nodes, constants, message = REFUSED[case]
    with pytest.raises(LingraftError, match=message):
        load_onnx(make_onnx([*nodes, ("ReduceSum", "c", "s", {"keepdims": 0}), ("Add", "x s", "y")], [1, 2], constants))


def test_loops_are_not_run(make_onnx):
    body = helper.make_graph(
        [], "body", [helper.make_tensor_value_info(n, t, []) for n, t in (("i", 7), ("c", 9), ("v", 1))],
        [helper.make_tensor_value_info(n, t, []) for n, t in (("c", 9), ("v", 1))],
    )  # fmt: skip
    constants = {"n": np.int64(2**40), "go": np.array(True), "v0": np.float32(1)}
    path = make_onnx([("Loop", "n go v0", "w", {"body": body}), ("Add", "x w", "y")], [1, 2], constants)
    with pytest.raises(LingraftError, match="loops and branches"):
        load_onnx(path)
