"""Operations that only move values, each compared with onnxruntime."""

import numpy as np
import pytest
from handmade_onnx import assert_read, integers, weights


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "layers"),
    [
        pytest.param([("Reshape", "x s", "y", {"allowzero": 1})], (2, 6), {"s": integers(1, 12)}, ["Flatten"], id="allowzero"),
        pytest.param([("Slice", "x a b c d", "y")], (6, 5), {"a": integers(1, -1), "b": integers(100, -100), "c": integers(1, 2), "d": integers(2, -1)}, [], id="slice"),
        pytest.param([("Gather", "x i", "y", {"axis": 2})], (2, 5), {"i": np.array([[0, -1], [2, 2]])}, [], id="gather"),
        pytest.param([("Gather", "x i", "y", {"axis": 1})], (3, 5), {"i": np.int64(-2)}, [], id="gather-one"),
        pytest.param([("Gather", "x i", "h", {"axis": 0}), ("Unsqueeze", "h a", "y")], (3, 5), {"i": np.int64(0), "a": integers(0)}, [], id="gather-the-only-one"),
        pytest.param([("Split", "x s", "a b", {"axis": 1}), ("Relu", "a", "h"), ("Concat", "b h", "y", {"axis": 1})], (7,), {"s": integers(3, 4)}, ["ReLU"], id="split"),
        pytest.param([("Split", "x", "a b", {"axis": -1}), ("Sub", "a b", "y")], (2, 8), {}, [], id="split-evenly"),
        pytest.param([("Concat", "c x d x e", "y", {"axis": 1})], (2, 3), {"c": weights(1, 1, 3), "d": weights(1, 2, 3), "e": weights(1, 4, 3)}, [], id="concat-constants"),
        pytest.param([("Expand", "x s", "y")], (1, 3), {"s": integers(4, 1)}, [], id="expand"),
        pytest.param([("Tile", "x s", "y")], (2, 3), {"s": integers(1, 2, 3)}, [], id="tile"),
        pytest.param([("DepthToSpace", "x", "y", {"blocksize": 2})], (12, 2, 3), {}, [], id="depth-to-space"),
        pytest.param([("DepthToSpace", "x", "y", {"blocksize": 2, "mode": "CRD"})], (12, 2, 3), {}, [], id="pixel-shuffle"),
        pytest.param([("SpaceToDepth", "x", "y", {"blocksize": 2})], (3, 4, 6), {}, [], id="space-to-depth"),
    ],
)  # fmt: skip
def test_move(make_onnx, nodes, shape, constants, layers):
    assert_read(make_onnx(nodes, [1, *shape], constants, opset=14 if "allowzero" in str(nodes) else 13), shape, layers)
