"""ONNX in: every supported operation, in the forms in which exporters write it."""

import copy

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.formats.onnx_import import load_onnx
from lingraft.formats.onnx_operations import TRANSLATORS
from lingraft.model.tracing import trace


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def kinds(module: nn.Module) -> list[str]:
    return [type(child).__name__ for child in module.children()]


def assert_same(path, module, *shape: int) -> None:
    """onnxruntime, image by image, gives what the module gives for a batch of three."""
    x = torch.rand(3, *shape) * 4 - 2
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    theirs = np.concatenate([session.run(None, {"x": image[None].numpy()})[0] for image in x])
    np.testing.assert_allclose(module(x).detach().numpy(), theirs, rtol=1e-4, atol=1e-5)


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
            [("Identity", "x", "a"), ("Dropout", "a", "h"), ("Relu", "h", "y")], (3,), {}, ["ReLU"], id="nothing"
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
    ],
)
def test_operation(make_onnx, nodes, shape, constants, layers):
    path = make_onnx(nodes, [1, *shape], constants)
    module = load_onnx(path)
    assert kinds(module) == layers
    assert module.input_shape == shape
    assert_same(path, module, *shape)
    trace(module)


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


def test_constant_subgraphs_are_folded(make_onnx):
    """Reshape to (Shape(x)[0], −1) as exporters write it, from shapes, slices, casts and concatenations."""
    nodes = [
        ("Shape", "x", "shape"),
        ("Gather", "shape zero", "n", {"axis": 0}),
        ("Unsqueeze", "n axes", "n1"),
        ("Concat", "n1 rest", "target", {"axis": 0}),
        ("Cast", "target", "target64", {"to": TensorProto.INT64}),
        ("Reshape", "x target64", "flat"),
        ("Transpose", "w", "wt", {"perm": [1, 0]}),
        ("Mul", "wt two", "wt2"),
        ("MatMul", "flat wt2", "y"),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "axes": integers(0),
        "rest": integers(-1),
        "w": weights(3, 8),
        "two": np.array(2, np.float32),
    }
    path = make_onnx(nodes, [1, 2, 4], constants)
    module = load_onnx(path)
    assert kinds(module) == ["Flatten", "Linear"]
    assert_same(path, module, 2, 4)


def test_constants_are_folded_by_the_rules_of_the_operator_set(make_onnx):
    """Before version 13 the axes of Unsqueeze are an attribute."""
    nodes = [
        ("Shape", "x", "shape"),
        ("Gather", "shape zero", "n"),
        ("Unsqueeze", "n", "n1", {"axes": [0]}),
        ("Concat", "n1 rest", "target", {"axis": 0}),
        ("Reshape", "x target", "y"),
    ]
    path = make_onnx(nodes, ["N", 2, 4], {"zero": np.array(0, np.int64), "rest": integers(-1)}, opset=11)
    module = load_onnx(path)
    assert kinds(module) == ["Flatten"]
    assert_same(path, module, 2, 4)


def test_open_batch_dimension(make_onnx):
    path = make_onnx([("Gemm", "x w", "y")], ["N", 4], {"w": weights(4, 2)})
    assert_same(path, load_onnx(path), 4)


def test_fixed_batch_dimension_does_not_bind_the_module(make_onnx):
    nodes = [("Reshape", "x s", "h"), ("Gemm", "h w", "y")]
    path = make_onnx(nodes, [4, 2, 3], {"s": integers(4, 6), "w": weights(6, 2)})
    assert load_onnx(path)(torch.rand(7, 2, 3)).shape == (7, 2)


def test_weights_stay_as_they_are(make_onnx):
    w = weights(3, 2, 3, 3)
    module = load_onnx(make_onnx([("Conv", "x w", "y")], [1, 2, 5, 5], {"w": w}))
    weight = module.conv2d1.weight
    assert weight.dtype == torch.float32
    assert weight.requires_grad
    assert np.array_equal(weight.detach().numpy(), w)


def test_what_the_output_does_not_need_is_left_out(make_onnx):
    module = load_onnx(make_onnx([("Tanh", "x", "unused"), ("Relu", "x", "y")], [1, 3]))
    assert kinds(module) == ["ReLU"]


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "message"),
    [
        pytest.param([("Softmax", "x", "y")], (3,), {}, "Softmax.*the_y.*not supported", id="operation"),
        pytest.param([("Mul", "x x", "y")], (3,), {}, "Mul node .*the_y.*product", id="product"),
        pytest.param([("Div", "c x", "y")], (3,), {"c": weights(3)}, "division by a value", id="division"),
        pytest.param([("MatMul", "x x", "y")], (1, 1), {}, "constant matrix", id="matmul"),
        pytest.param([("Add", "x c", "y")], (3,), {"c": weights(2, 3)}, "across the batch", id="batch-constant"),
        pytest.param([("Transpose", "x", "y", {"perm": [1, 0]})], (3,), {}, "moves the batch", id="transpose"),
        pytest.param([("Reshape", "x s", "y")], (3,), {"s": integers(3)}, "batch dimension", id="reshape"),
        pytest.param([("Concat", "x x", "y", {"axis": 0})], (3,), {}, "batch dimension", id="concat"),
        pytest.param(
            [("Pad", "x p", "y", {"mode": "reflect"})],
            (3,),
            {"p": integers(0, 1, 0, 1)},
            "mode = reflect",
            id="reflect",
        ),
        pytest.param([("Pad", "x p", "y")], (3,), {"p": integers(0, -1, 0, 0)}, "pads", id="crop"),
        pytest.param(
            [("MaxPool", "x", "y", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]})],
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


def test_double_precision_input(make_onnx):
    with pytest.raises(LingraftError, match="float32"):
        load_onnx(make_onnx([("Cast", "x", "y", {"to": 1})], [1, 3], input_type=TensorProto.DOUBLE))


def test_two_outputs(make_onnx):
    with pytest.raises(LingraftError, match="2 outputs"):
        load_onnx(make_onnx([("Relu", "x", "a"), ("Tanh", "x", "b")], [1, 3], outputs=("a", "b")))


@pytest.mark.parametrize("reader", [("Add", "z mean", "y"), ("Relu", "z", "y")])
def test_a_second_output_of_batch_norm_is_that_of_training(make_onnx, reader):
    nodes = [("BatchNormalization", "x s b m v", "z mean var p q"), reader]
    path = make_onnx(nodes, [1, 3], {name: np.ones(3, np.float32) for name in "sbmv"}, opset=9)
    with pytest.raises(LingraftError, match="second output is not supported"):
        load_onnx(path)


def test_input_without_a_batch_dimension(make_onnx):
    with pytest.raises(LingraftError, match="batch dimension"):
        load_onnx(make_onnx([("Relu", "x", "y")], ["N"]))


def test_a_network_that_disagrees_with_onnxruntime_is_refused(make_onnx, monkeypatch):
    monkeypatch.setitem(TRANSLATORS, "Relu", TRANSLATORS["Identity"])
    with pytest.raises(LingraftError, match="differs from onnxruntime"):
        load_onnx(make_onnx([("Relu", "x", "y")], [1, 3]))


@pytest.mark.parametrize(
    "name", ["cifar_cnn_a_adv", "mnist_cnn_a_adv", "oval_base", "resnet2b", "cnn_b_fat", "cnn_b_graft50"]
)
def test_public_networks_classify_their_images(problems_folder, name):
    problems = np.load(problems_folder / name / "problems.npz")
    module = lingraft.load_onnx(problems_folder / name / "model.onnx")
    assert module.input_shape == problems["image"].shape[1:]
    with torch.no_grad():
        classes = module(torch.from_numpy(problems["image"])).argmax(1)
    assert classes.tolist() == problems["label"].tolist()


ALIASES: dict[str, tuple] = {
    "identity": ("Identity", "m", "a"),
    "dropout": ("Dropout", "m", "a"),
    "flatten": ("Flatten", "m", "a"),
    "reshape": ("Reshape", "m same", "a"),
    "transpose": ("Transpose", "m", "a", {"perm": [0, 1]}),
    "concat": ("Concat", "m", "a", {"axis": 1}),
}


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("reader", ["add", "output"])
def test_a_value_under_two_names_keeps_both(make_onnx, alias: str, reader: str) -> None:
    """m is read under its own name too, so what is added to its other name must not reach that reader."""
    nodes = [("MatMul", "x w", "m"), ALIASES[alias], ("Add", "a shift", "b")]
    if reader == "add":
        nodes += [("Sub", "m far", "c"), ("Relu", "c", "r"), ("Add", "b r", "y")]
    else:
        nodes += [("Relu", "b", "r"), ("Add", "r m", "y")]
    constants = {"w": weights(2, 3), "shift": weights(3) - 5, "far": weights(3) + 20, "same": integers(0, -1)}
    path = make_onnx(nodes, [1, 2], constants)
    module = load_onnx(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for scale in (1, 10, 1000):
        x = scale * weights(8, 2, seed=scale)
        theirs = np.concatenate([session.run(None, {"x": image[None]})[0] for image in x])
        np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), theirs, rtol=1e-4, atol=1e-4)


def random_graph(draw: st.DrawFn) -> tuple[list[tuple], list[int], dict[str, np.ndarray]]:
    """Nodes, input shape and constants of a small network of layers, shifts and scales, aliases and shared values."""
    as_map = draw(st.booleans())
    shape = [1, 2, 3, 3] if as_map else [1, 4]
    each = (1, 2, 1, 1) if as_map else (4,)
    constants: dict[str, np.ndarray] = {"shape": integers(*([0] * (len(shape) - 1)), -1)}
    nodes: list[tuple] = []
    values = ["x"]

    def constant(*sizes: int, scale: float = 1.0) -> str:
        name = f"c{len(constants)}"
        array = scale * weights(*sizes, seed=draw(st.integers(0, 999)))
        constants[name] = np.where(np.abs(array) < draw(st.sampled_from([0.0, 1.0])), 0, array).astype(np.float32)
        return name

    def add(operation: str, inputs: str, attributes: dict | None = None) -> str:
        values.append(f"v{len(values)}")
        nodes.append((operation, inputs, values[-1], attributes or {}))
        return values[-1]

    def layer(x: str) -> str:
        if as_map:
            return add("Conv", f"{x} {constant(2, 2, 3, 3)}", {"pads": [1, 1, 1, 1]})
        bias = draw(st.booleans())
        return add("Gemm", f"{x} {constant(4, 4)} {constant(4)}") if bias else add("MatMul", f"{x} {constant(4, 4)}")

    def shift(x: str) -> str:
        far = constant(*draw(st.sampled_from([each, tuple(shape), (1,)])), scale=draw(st.sampled_from([1.0, 50.0])))
        left, right = draw(st.permutations([x, far]))
        return add(draw(st.sampled_from(["Add", "Sub"])), f"{left} {right}")

    def alias(x: str) -> str:
        same = {"perm": list(range(len(shape)))}
        ways = [("Identity", x), ("Dropout", x), ("Reshape", f"{x} shape"), ("Transpose", x, same)]
        return add(*draw(st.sampled_from(ways)))

    def bend(x: str) -> str:
        return add(draw(st.sampled_from(["Relu", "Relu", "LeakyRelu", "Tanh", "Sigmoid"])), x)

    def scale(x: str) -> str:
        return add("Mul", f"{x} {constant(*draw(st.sampled_from([each, tuple(shape)])))}")

    def norm(x: str) -> str:
        parts = [constant(shape[1]) for _ in range(4)]
        constants[parts[3]] = np.abs(constants[parts[3]]) + np.float32(0.1)
        return add("BatchNormalization", " ".join([x, *parts]))

    def join(x: str) -> str:
        return add(draw(st.sampled_from(["Add", "Sub"])), f"{x} {draw(st.sampled_from(values))}")

    def shifted_twice(x: str) -> str:
        """A layer's result, under two names, with something else added to each."""
        m = layer(x)
        return add("Add", f"{bend(shift(m))} {shift(alias(m))}")

    steps = [layer, shift, alias, bend, scale, norm, join, shifted_twice]
    for _ in range(draw(st.integers(2, 7))):
        draw(st.sampled_from(steps))(draw(st.sampled_from(values[-4:])))
    read = {name for node in nodes for name in node[1].split()}
    for unread in [value for value in values[1:-1] if value not in read]:  # so that everything matters
        add("Add", f"{values[-1]} {unread}")
    operation, inputs, _, attributes = nodes[-1]
    nodes[-1] = (operation, inputs, "y", attributes)
    return nodes, shape, constants


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_graph_is_read_as_onnxruntime_reads_it(make_onnx, data: st.DataObject) -> None:
    """Whatever is fused, restored or left out: the same values at points of several sizes."""
    nodes, shape, constants = data.draw(st.composite(lambda draw: random_graph(draw))())
    path = make_onnx(nodes, shape, constants)
    module = load_onnx(path)  # which compares as well, less closely
    single = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    exact = copy.deepcopy(module).double()
    for scale in (0.1, 1, 30, 1000):
        x = scale * weights(6, *shape[1:], seed=data.draw(st.integers(0, 99)))
        theirs = np.concatenate([single.run(None, {"x": image[None]})[0] for image in x])
        with torch.no_grad():
            rough, ours = module(torch.from_numpy(x)).numpy(), exact(torch.from_numpy(x).double()).numpy()
        rounding = np.abs(rough - ours).max() + 1e-6 * np.abs(ours).max()
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=32 * rounding + 1e-6)
