"""Operations of ONNX files, each compared with onnxruntime; what is not supported is named."""

import numpy as np
import pytest
import torch
from handmade_onnx import assert_read, assert_same, integers, kinds, weights

import lingraft
from lingraft import LingraftError
from lingraft.formats import onnx_operations, onnx_translators
from lingraft.formats.onnx_import import load_onnx


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "layers"),
    [
        pytest.param(
            [("Gemm", "x w b", "y", {"transB": 1})], (4,), {"w": weights(3, 4), "b": weights(3)}, ["Linear"], id="gemm"
        ),
        pytest.param(
            [("Gemm", "x w b", "y", {"alpha": 0.5, "beta": 3.0})],
            (4,),
            {"w": weights(4, 3), "b": weights(1, 3)},
            ["Linear"],
            id="gemm-scaled",
        ),
        pytest.param([("Gemm", "x w", "y")], (4,), {"w": weights(4, 3)}, ["Linear"], id="gemm-without-bias"),
        pytest.param(
            [("MatMul", "x w", "h"), ("Add", "b h", "y")],
            (4,),
            {"w": weights(4, 3), "b": weights(3)},
            ["Linear"],
            id="matmul-add",
        ),
        pytest.param(
            [("MatMul", "x w", "h"), ("Sub", "h b", "y")],
            (2, 4),
            {"w": weights(4, 3), "b": weights(3)},
            ["Linear"],
            id="matmul-sub-rank-3",
        ),
        pytest.param([("MatMul", "w x", "y")], (4, 1), {"w": weights(3, 4)}, ["Linear"], id="matmul-from-the-left"),
        pytest.param(
            [("Conv", "x w b", "y", {"strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 2]})],
            (2, 7, 7),
            {"w": weights(3, 2, 3, 2), "b": weights(3)},
            ["Conv2d"],
            id="conv",
        ),
        pytest.param(
            [("Conv", "x w", "y", {"pads": [0, 1, 2, 1], "group": 2})],
            (4, 5, 5),
            {"w": weights(6, 2, 3, 3)},
            ["ZeroPad2d", "Conv2d"],
            id="conv-uneven-pads",
        ),
        pytest.param(
            [("Conv", "x w", "y", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})],
            (1, 6, 5),
            {"w": weights(1, 1, 3, 3)},
            ["ZeroPad2d", "Conv2d"],
            id="conv-same-upper",
        ),
        pytest.param(
            [("Conv", "x w", "y", {"auto_pad": "SAME_LOWER"})],
            (1, 6, 5),
            {"w": weights(1, 1, 2, 2)},
            ["ZeroPad2d", "Conv2d"],
            id="conv-same-lower",
        ),
        pytest.param(
            [("Conv", "x w", "y", {"auto_pad": "VALID"})], (1, 6, 5), {"w": weights(1, 1, 2, 2)}, ["Conv2d"], id="valid"
        ),
        pytest.param(
            [("Conv", "x w", "h"), ("Add", "h b", "y")],
            (2, 5, 5),
            {"w": weights(3, 2, 3, 3), "b": weights(1, 3, 1, 1)},
            ["Conv2d"],
            id="conv-add",
        ),
        pytest.param(
            [("Conv", "x w", "y", {"pads": [1, 1]})], (2, 8), {"w": weights(3, 2, 3)}, ["Conv1d"], id="conv-1d"
        ),
        pytest.param(
            [("BatchNormalization", "x s b m v", "y", {"epsilon": 0.01})],
            (3, 4, 4),
            {"s": weights(3), "b": weights(3), "m": weights(3), "v": np.abs(weights(3))},
            ["BatchNorm2d"],
            id="batch-norm",
        ),
        pytest.param(
            [("BatchNormalization", "x s b m v", "y")],
            (3,),
            {"s": weights(3), "b": weights(3), "m": weights(3), "v": np.abs(weights(3))},
            ["BatchNorm1d"],
            id="batch-norm-1d",
        ),
        pytest.param([("Relu", "x", "y")], (3,), {}, ["ReLU"], id="relu"),
        pytest.param([("LeakyRelu", "x", "y", {"alpha": 0.2})], (3,), {}, ["LeakyReLU"], id="leaky"),
        pytest.param([("Sigmoid", "x", "h"), ("Tanh", "h", "y")], (3,), {}, ["Sigmoid", "Tanh"], id="smooth"),
        pytest.param(
            [("MaxPool", "x", "y", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})],
            (2, 7, 7),
            {},
            ["MaxPool2d"],
            id="max-pool",
        ),
        pytest.param(
            [("AveragePool", "x", "y", {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]})],
            (2, 6, 6),
            {},
            ["AvgPool2d"],
            id="average-pool-without-padding-counted",
        ),
        pytest.param(
            [("AveragePool", "x", "y", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1], "count_include_pad": 1})],
            (2, 6, 6),
            {},
            ["ZeroPad2d", "AvgPool2d"],
            id="average-pool-uneven-pads",
        ),
        pytest.param([("GlobalAveragePool", "x", "y")], (2, 6, 6), {}, ["AdaptiveAvgPool2d"], id="global-pool"),
        pytest.param([("Flatten", "x", "y")], (2, 3, 3), {}, ["Flatten"], id="flatten"),
        pytest.param([("Flatten", "x", "y", {"axis": 0})], (6,), {}, [], id="flatten-of-nothing"),
        pytest.param([("Reshape", "x s", "y")], (2, 6), {"s": integers(0, -1, 4)}, [], id="reshape-copied-dimension"),
        pytest.param([("Reshape", "x s", "y")], (2, 6), {"s": integers(-1, 12)}, ["Flatten"], id="reshape-open-batch"),
        pytest.param([("Reshape", "x s", "y")], (2, 6), {"s": integers(1, 3, 4)}, [], id="reshape-batch-of-one"),
        pytest.param([("Transpose", "x", "y", {"perm": [0, 3, 1, 2]})], (2, 3, 4), {}, [], id="transpose"),
        pytest.param(
            [("Squeeze", "x a", "h"), ("Unsqueeze", "h b", "y")],
            (1, 5),
            {"a": integers(1), "b": integers(-1)},
            ["Flatten"],
            id="squeeze-unsqueeze",
        ),
        pytest.param([("Relu", "x", "h"), ("Concat", "x h x", "y", {"axis": -1})], (2, 3), {}, ["ReLU"], id="concat"),
        pytest.param(
            [("Pad", "x p", "y")], (2, 3, 3), {"p": integers(0, 0, 1, 0, 0, 0, 2, 1)}, ["ZeroPad2d"], id="pad"
        ),
        pytest.param(
            [("Pad", "x p v", "y")],
            (2, 3, 3),
            {"p": integers(0, 1, 0, 0, 0, 0, 0, 1), "v": np.array(0.5, np.float32)},
            [],
            id="pad-channels-with-a-value",
        ),
        pytest.param(
            [("Identity", "x", "a"), ("Dropout", "a", "h m"), ("Relu", "h", "y")], (3,), {}, ["ReLU"], id="nothing"
        ),
        pytest.param(
            [("Neg", "x", "a"), ("Max", "x c a", "h"), ("Min", "h d x", "y")],
            (3,),
            {"c": np.array(-0.5, np.float32), "d": weights(3)},
            ["ReLU"] * 4,
            id="max-and-min",
        ),
        pytest.param(
            [("Relu", "x", "a"), ("Sum", "x c a", "h"), ("Mean", "a h x", "y")], (3,), {"c": weights(3)}, ["ReLU"], id="sum"
        ),
        pytest.param(
            [("Sub", "x m", "h"), ("Div", "h s", "y")],
            (3, 2, 2),
            {"m": weights(3, 1, 1), "s": np.abs(weights(1, 3, 1, 1)) + 1},
            [],
            id="normalization",
        ),
        pytest.param([("Sub", "c x", "h"), ("Mul", "c h", "y")], (3,), {"c": weights(3)}, [], id="constant-first"),
        pytest.param(
            [("Relu", "x", "a"), ("Tanh", "x", "b"), ("Sub", "a b", "h"), ("Add", "h x", "y")],
            (3,),
            {},
            ["ReLU", "Tanh"],
            id="values-added",
        ),
        pytest.param([("Neg", "x", "y")], (3,), {}, [], id="neg"),
        pytest.param([("Softmax", "x", "h", {"axis": 1}), ("LogSoftmax", "h", "y")], (3,), {}, ["Softmax", "LogSoftmax"], id="softmax"),
        pytest.param([("ReduceMean", "x", "y", {"axes": [2, 3], "keepdims": 0})], (2, 4, 3), {}, ["AdaptiveAvgPool2d", "Flatten"], id="mean"),
        pytest.param([("ReduceMean", "x", "y", {"axes": [2, -1]})], (2, 4, 3), {}, ["AdaptiveAvgPool2d"], id="mean-kept"),
        pytest.param([("ReduceMean", "x", "y", {"axes": [1]})], (2, 4, 3), {}, [], id="mean-of-channels"),
        pytest.param([("ReduceSum", "x a", "y", {"keepdims": 0})], (2, 4, 3), {"a": integers(-1)}, [], id="sum"),
        pytest.param([("ReduceSum", "x", "y")], (2, 4), {}, [], id="sum-of-all"),
        pytest.param([("ReduceSum", "x a", "y", {"noop_with_empty_axes": 1})], (2, 4), {"a": integers()}, [], id="sum-of-nothing"),
        pytest.param([("Cast", "x", "h", {"to": 11}), ("Cast", "h", "y", {"to": 1})], (3,), {}, [], id="cast"),
        pytest.param([("MatMul", "x w", "y")], (2, 3, 4), {"w": weights(2, 4, 5)}, ["Linear", "Linear"], id="matmul-of-a-stack"),
        pytest.param([("MatMul", "x w", "y")], (2, 4), {"w": weights(4)}, ["Linear", "Flatten"], id="matmul-with-a-vector"),
        pytest.param([("Transpose", "x", "t", {"perm": [0, 2, 1]}), ("MatMul", "x t", "y")], (2, 4), {}, [], id="matmul-of-values"),
        pytest.param([("Transpose", "x", "t"), ("MatMul", "t x", "h"), ("Unsqueeze", "h a", "y")], (4,), {"a": integers(0)}, [], id="matmul-without-batch"),
        pytest.param([("Squeeze", "x a", "v"), ("MatMul", "v v", "y")], (3,), {"a": integers(0)}, ["Flatten", "Flatten"], id="matmul-of-vectors"),
        pytest.param([("Reshape", "x a", "v"), ("Reshape", "x b", "m"), ("Gather", "v i", "w"), ("MatMul", "w m", "y")], (6,),
                     {"a": integers(6), "b": integers(2, 3), "i": integers(5, 1)}, ["Flatten", "Flatten", "Flatten"], id="vector-times-matrix"),
        pytest.param([("Reshape", "x a", "v"), ("Reshape", "x b", "m"), ("Gather", "v i", "w"), ("MatMul", "m w", "y")], (6,),
                     {"a": integers(6), "b": integers(1, 2, 3), "i": integers(5, 1, 0)}, ["Flatten", "Flatten"], id="matrices-times-vector"),
        pytest.param([("MatMul", "w x", "y")], (2, 3, 4), {"w": weights(2, 5, 3)}, ["Linear", "Linear"], id="stack-from-the-left"),
        pytest.param([("MatMul", "w x", "y")], (3, 4), {"w": weights(1, 2, 3)}, ["Linear"], id="stack-of-one-from-the-left"),
        pytest.param([("Gather", "x i", "y", {"axis": 1})], (3,), {"i": np.array(2)}, [], id="one-number"),
        pytest.param([("Relu", "x", "h"), ("ReduceSum", "h", "y", {"keepdims": 0})], (3,), {}, ["ReLU"], id="one-number-of-all"),
        pytest.param([("Exp", "x", "h"), ("Div", "x h", "y")], (3,), {}, [], id="quotient"),
        pytest.param([("Exp", "x", "h"), ("Div", "c h", "y")], (3,), {"c": weights(3)}, [], id="division"),
        pytest.param([("Exp", "x", "h"), ("Sqrt", "h", "r"), ("Reciprocal", "r", "y")], (2, 4), {}, [], id="root"),
        pytest.param([("Sin", "x", "s"), ("Cos", "s", "y")], (2, 4, 3), {}, [], id="waves"),
        pytest.param([("Mul", "x c", "h"), ("Sign", "h", "s"), ("Floor", "h", "f"), ("Add", "s f", "y")], (3,), {"c": weights(3)}, [], id="steps"),
        pytest.param([("Pow", "x two", "a"), ("Pow", "x three", "b"), ("Pow", "b one", "c"), ("Add", "a c", "y")], (3,),
                     {"one": weights(1) * 0 + 1, "two": np.array(2, np.float32), "three": np.full((1, 3), 3, np.int64)}, [], id="powers"),
        pytest.param([("Equal", "c d", "e"), ("Where", "e x c", "y")], (3,), {"c": weights(3), "d": weights(3) * np.float32([1, 2, 1])}, [], id="where-constant"),
        pytest.param([("Neg", "x", "n"), ("Where", "e n x", "y")], (2, 3), {"e": np.array([[[True], [False]]])}, [], id="where"),
    ],
)  # fmt: skip
def test_operation(make_onnx, nodes, shape, constants, layers):
    assert_read(make_onnx(nodes, [1, *shape], constants), shape, layers)


@pytest.mark.parametrize(
    ("shape", "axis", "inputs"), [((6,), -1, "x s"), ((3, 6), -1, "x s b"), ((3, 6), 1, "x t b"), ((3, 6), 2, "x s b")]
)
def test_layer_normalization(make_onnx, shape, axis, inputs):
    constants = {"s": weights(6), "t": weights(3, 6), "b": weights(6)}
    nodes = [("LayerNormalization", inputs, "y", {"axis": axis, "epsilon": 0.01})]
    path = make_onnx(nodes, [1, *shape], constants, opset=17)
    assert_same(path, load_onnx(path), *shape)


def test_older_operator_sets_give_lists_as_attributes(make_onnx):
    nodes = [
        ("Pad", "x", "p", {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "value": 0.0}),
        ("Unsqueeze", "p", "u", {"axes": [1]}),
        ("Squeeze", "u", "y", {"axes": [1]}),
    ]
    path = make_onnx(nodes, [1, 2, 3, 3], opset=10)
    module = load_onnx(path)
    assert kinds(module) == ["ZeroPad2d"]
    assert_same(path, module, 2, 3, 3)


def test_older_softmax_is_over_all_dimensions_that_follow(make_onnx):
    path = make_onnx([("Softmax", "x", "y")], [1, 2, 3, 2], opset=11)
    assert_same(path, load_onnx(path), 2, 3, 2)
    path = make_onnx([("LogSoftmax", "x", "y", {"axis": 2})], [1, 2, 3, 2], opset=11)
    assert_same(path, load_onnx(path), 2, 3, 2)


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "message"),
    [
        pytest.param([("Tan", "x", "y")], (3,), {}, "Tan.*the_y.*not supported", id="operation"),
        pytest.param([("Pow", "x c", "y")], (3,), {"c": weights(3)}, "Pow node .*exponents", id="powers"),
        pytest.param([("Pow", "c x", "y")], (3,), {"c": weights(3)}, "Pow node .*constant", id="exponent"),
        pytest.param(
            [("Pad", "x p", "y", {"mode": "reflect"})],
            (3,),
            {"p": integers(0, 1, 0, 1)},
            "mode = reflect",
            id="reflect",
        ),
        pytest.param([("Pad", "x p", "y")], (3,), {"p": integers(0, -1, 0, 0)}, "pads", id="crop"),
        pytest.param(
            [("MaxPool", "x", "y", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1], "dilations": [2, 2]})],
            (1, 4, 4),
            {},
            "padding",
            id="max-pool",
        ),
        pytest.param(
            [("Gemm", "x w", "y", {"transA": 1})], (1,), {"w": weights(1, 3)}, "transA = 1 is not", id="attribute"
        ),
        pytest.param(
            [("ConstantOfShape", "s", "h"), ("Add", "x h", "y")],
            (1,),
            {"s": integers(1, 1 << 40)},
            "too many",
            id="bomb",
        ),
        pytest.param([("Gemm", "x w", "y")], (3,), {"w": np.full((3, 2), np.nan, np.float32)}, "NaN", id="nan"),
        pytest.param([("Identity", "c", "y")], (3,), {"c": weights(3)}, "does not depend", id="constant-network"),
        pytest.param(
            [("Pad", "x p", "y")], (3,), {"p": integers(0, 0, 0, 1 << 40)}, "too many|not valid", id="huge-pad"
        ),
    ],
)
def test_unsupported(make_onnx, nodes, shape, constants, message):
    with pytest.raises(LingraftError, match=message):
        load_onnx(make_onnx(nodes, [1, *shape], constants))


def test_custom_operation(make_onnx):
    path = make_onnx([("Graft", "x", "y")], [1, 3], domain="my.own")
    with pytest.raises(LingraftError, match=r"my\.own"):
        load_onnx(path)


def test_an_operation_of_one_s_own_is_read_and_verified(make_onnx, monkeypatch):
    """One function is all it takes where torch has calls for it that the verifier knows."""
    monkeypatch.delitem(onnx_translators.TRANSLATORS, "Neg")
    nodes = [("Gemm", "x w b", "h"), ("Neg", "h", "n"), ("Relu", "n", "r"), ("Gemm", "r v c", "y")]
    path = make_onnx(nodes, [1, 4], {"w": weights(4, 3), "b": weights(3), "v": weights(3, 3), "c": weights(3)})
    with pytest.raises(LingraftError, match="operation Neg is not supported"):
        load_onnx(path)

    @onnx_operations.translates("Neg")
    def _(builder, node):
        return builder.call(torch.neg, node.value(0))

    module = load_onnx(path)
    assert_same(path, module, 4)
    image = torch.rand(1, 4)
    (result,) = lingraft.verify(module, image, module(image).argmax(1), eps=1e-4, workers=0)
    assert result.verdict == "verified"


def test_one_that_is_written_wrongly_is_noticed(make_onnx, monkeypatch):
    monkeypatch.delitem(onnx_translators.TRANSLATORS, "Neg")

    @onnx_operations.translates("Neg")
    def _(builder, node):
        return node.value(0)

    with pytest.raises(LingraftError, match="differs from onnxruntime"):
        load_onnx(make_onnx([("Neg", "x", "h"), ("Relu", "h", "y")], [1, 4]))
