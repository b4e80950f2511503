"""Operations that look at windows, each compared with onnxruntime."""

import numpy as np
import pytest
from handmade_onnx import assert_read, integers, weights


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "layers"),
    [
        pytest.param(
            [("ConvTranspose", "x w b", "y", {"strides": [2, 1], "pads": [1, 0, 1, 0], "output_padding": [1, 0], "group": 2, "dilations": [1, 2]})],
            (4, 5, 4), {"w": weights(4, 3, 3, 2), "b": weights(6)}, ["ConvTranspose2d"], id="conv-transpose",
        ),
        pytest.param([("ConvTranspose", "x w", "y")], (2, 5), {"w": weights(2, 3, 3)}, ["ConvTranspose1d"], id="conv-transpose-1d"),
        pytest.param([("ConvTranspose", "x w", "y", {"pads": [1, 0, 0, 2], "strides": [2, 2], "output_padding": [1, 0]})], (2, 3, 4), {"w": weights(2, 3, 3, 4)}, ["ConvTranspose2d"], id="conv-transpose-uneven"),
        pytest.param([("ConvTranspose", "x w", "y", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})], (2, 3, 4), {"w": weights(2, 1, 3, 5)}, ["ConvTranspose2d"], id="conv-transpose-same-upper"),
        pytest.param([("ConvTranspose", "x w", "y", {"auto_pad": "SAME_LOWER", "strides": [2]})], (2, 4), {"w": weights(2, 1, 3)}, ["ConvTranspose1d"], id="conv-transpose-same-lower"),
        pytest.param([("ConvTranspose", "x w", "y", {"output_shape": [6, 5], "strides": [2, 1]})], (2, 3, 4), {"w": weights(2, 1, 3, 4)}, ["ConvTranspose2d"], id="conv-transpose-sides"),
        pytest.param([("MaxPool", "x", "y", {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1})], (2, 5, 6), {}, ["MaxPool2d"], id="max-pool-ceil"),
        pytest.param([("AveragePool", "x", "y", {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1})], (2, 5, 6), {}, ["AvgPool2d"], id="average-pool-ceil"),
        pytest.param([("MaxPool", "x", "h", {"kernel_shape": [3], "pads": [1, 1]}), ("AveragePool", "h", "y", {"kernel_shape": [2]})], (2, 7), {}, ["MaxPool1d", "AvgPool1d"], id="pool-1d"),
        pytest.param([("GlobalAveragePool", "x", "y")], (2, 7), {}, ["AdaptiveAvgPool1d"], id="global-pool-1d"),
        pytest.param([("GlobalMaxPool", "x", "y")], (2, 7, 3), {}, ["MaxPool2d"], id="global-max-pool"),
        pytest.param(
            [("Resize", "x  s", "y", {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})],
            (2, 3, 4), {"s": np.array([1, 1, 2, 3], np.float32)}, ["Upsample"], id="nearest",
        ),
        pytest.param(
            [("Resize", "x   z", "y", {"mode": "linear", "coordinate_transformation_mode": "align_corners"})],
            (2, 3, 4), {"z": integers(1, 2, 5, 7)}, ["Upsample"], id="bilinear-aligned",
        ),
        pytest.param(
            [("Resize", "x   z", "y", {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"})],
            (2, 4), {"z": integers(1, 2, 7)}, ["Upsample"], id="linear",
        ),
        pytest.param([("MaxPool", "x", "y i", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [0, 0, 2, 1]})], (2, 5, 6), {}, ["MaxPool2d"], id="max-pool-after"),
        pytest.param([("MaxPool", "x", "y", {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [2, 2, 2, 2]})], (2, 5, 6), {}, ["MaxPool2d"], id="max-pool-wide"),
        pytest.param([("MaxPool", "x", "y", {"kernel_shape": [2], "auto_pad": "SAME_LOWER"})], (2, 7), {}, ["MaxPool1d"], id="max-pool-same"),
        pytest.param([("AveragePool", "x", "y", {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"})], (2, 6, 6), {}, ["ZeroPad2d", "AvgPool2d"], id="average-pool-same"),
        pytest.param([("Pad", "x p", "y", {"mode": "reflect"})], (2, 4, 5), {"p": integers(0, 0, 1, 2, 0, 0, 0, 3)}, [], id="reflect"),
        pytest.param([("Pad", "x p", "y", {"mode": "edge"})], (2, 5), {"p": integers(0, 0, 1, 0, 0, 2)}, [], id="edge"),
    ],
)  # fmt: skip
def test_window(make_onnx, nodes, shape, constants, layers):
    assert_read(make_onnx(nodes, [1, *shape], constants), shape, layers)
