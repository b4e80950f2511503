"""ONNX in: every supported operation, in the forms in which exporters write it."""

import copy
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from handmade_onnx import assert_same, integers, kinds, weights, write_onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.formats import onnx_translators
from lingraft.formats.onnx_import import load_onnx
from lingraft.formats.runtime import IMPORT_TOLERANCE, Session, disagreement


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


def test_input_of_another_type(make_onnx):
    with pytest.raises(LingraftError, match="float32 or float64"):
        load_onnx(make_onnx([("Cast", "x", "y", {"to": 1})], [1, 3], input_type=TensorProto.INT64))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_double_precision(make_onnx, kind):
    """Weights that float32 does not hold are kept; a network that only takes float64 is read as such."""
    w = np.random.default_rng(0).normal(size=(3, 2))
    nodes = [("Cast", "x", "h", {"to": TensorProto.DOUBLE}), ("MatMul", "h w", "m"), ("Cast", "m", "y", {"to": 1})]
    module = load_onnx(make_onnx(nodes, [1, 3], {"w": w}, input_type=kind))
    assert module.linear1.weight.dtype == torch.float64
    assert np.array_equal(module.linear1.weight.detach().numpy(), w.T)


def test_double_precision_that_single_holds(make_onnx):
    nodes = [("Cast", "x", "h", {"to": TensorProto.DOUBLE}), ("MatMul", "h w", "m"), ("Cast", "m", "y", {"to": 1})]
    module = load_onnx(make_onnx(nodes, [1, 3], {"w": weights(3, 2).astype(np.float64)}))
    assert module.linear1.weight.dtype == torch.float32


BARE = {
    "vector": ([("MatMul", "x w", "h"), ("Relu", "h", "r"), ("Add", "r b", "y")], [4], {"w": weights(4, 3), "b": weights(3)}),
    "one number": ([("MatMul", "x w", "h"), ("Relu", "h", "r"), ("MatMul", "r v", "y")], [1], {"w": weights(1, 3), "v": weights(3, 1)}),
    "a vector that gets a batch": ([("Unsqueeze", "x a", "h"), ("Gemm", "h w", "y")], [4], {"a": integers(0), "w": weights(4, 3)}),
    "an image": ([("Reshape", "x s", "h"), ("Conv", "h w", "y")], [2, 5, 5], {"s": integers(1, 2, 5, 5), "w": weights(3, 2, 3, 3)}),
    "rows that are mixed": ([("Transpose", "x", "h", {"perm": [1, 0]}), ("MatMul", "h w", "y")], [2, 3], {"w": weights(2, 4)}),
    "from the left": ([("MatMul", "w x", "y")], [2, 3], {"w": weights(4, 2)}),
    "a row and a vector": ([("MatMul", "x v", "s"), ("Reshape", "s o", "t"), ("MatMul", "t x", "y")], [3, 2], {"v": weights(2), "o": integers(1, 3)}),
    "a batch of one that is lost": ([("Squeeze", "x a", "h"), ("Transpose", "h", "t"), ("MatMul", "t w", "y")], [1, 3, 2], {"a": integers(0), "w": weights(3, 4)}),
    "rows from one": ([("Add", "x c", "y")], [1, 3], {"c": weights(2, 3)}),
    "joined along the first dimension": ([("Relu", "x", "h"), ("Concat", "x h c", "y", {"axis": 0})], [1, 3], {"c": weights(1, 3)}),
}  # fmt: skip


@pytest.mark.parametrize("case", BARE)
def test_values_without_a_batch_dimension(make_onnx, case):
    """Where a file takes one input at a time, the module still takes many."""
    nodes, dims, constants = BARE[case]
    path = make_onnx(nodes, dims, constants)
    module = load_onnx(path)
    shape = tuple(dims[1:] if dims[0] == 1 and len(dims) > 1 else dims)
    assert module.input_shape == shape
    x = torch.rand(3, *shape) * 4 - 2
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    theirs = [session.run(None, {"x": image.numpy().reshape(dims)})[0] for image in x]
    np.testing.assert_allclose(
        module(x).detach().numpy().reshape(3, -1), np.stack(theirs).reshape(3, -1), rtol=1e-4, atol=1e-5
    )


def test_two_outputs(make_onnx):
    with pytest.raises(LingraftError, match="2 outputs"):
        load_onnx(make_onnx([("Relu", "x", "a"), ("Tanh", "x", "b")], [1, 3], outputs=("a", "b")))


@pytest.mark.parametrize("reader", [("Add", "z mean", "y"), ("Relu", "z", "y")])
def test_a_second_output_of_batch_norm_is_that_of_training(make_onnx, reader):
    nodes = [("BatchNormalization", "x s b m v", "z mean var p q"), reader]
    path = make_onnx(nodes, [1, 3], {name: np.ones(3, np.float32) for name in "sbmv"}, opset=9)
    with pytest.raises(LingraftError, match="second output is not supported"):
        load_onnx(path)


def test_input_of_open_size(make_onnx):
    with pytest.raises(LingraftError, match="batch dimension"):
        load_onnx(make_onnx([("Relu", "x", "y")], ["N"]))


def test_a_network_that_disagrees_with_onnxruntime_is_refused(make_onnx, monkeypatch):
    monkeypatch.setitem(onnx_translators.TRANSLATORS, "Neg", onnx_translators.TRANSLATORS["Identity"])
    with pytest.raises(LingraftError, match="differs from onnxruntime"):
        load_onnx(make_onnx([("Neg", "x", "y")], [1, 3]))


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


def test_an_exponential_that_overflows_far_from_the_inputs_is_no_mistake(tmp_path: Path) -> None:
    """A softmax written with Exp, which is not finite where its inputs are in the hundreds."""
    nodes = [("Gemm", "x w", "z"), ("Exp", "z", "e"), ("ReduceSum", "e axes", "s"), ("Div", "e s", "y")]
    weights = {"w": np.eye(3, dtype=np.float32) * 5, "axes": np.array([1])}
    model = load_onnx(write_onnx(tmp_path, nodes, [1, 3], weights))
    x = torch.tensor([[0.1, -0.2, 0.3]])
    torch.testing.assert_close(model(x), torch.softmax(5 * x, 1))


def test_a_network_without_finite_outputs_is_refused(tmp_path: Path) -> None:
    nodes = [("Gemm", "x w", "z"), ("Exp", "z", "y")]
    with pytest.raises(LingraftError, match="NaN or infinite outputs"):
        load_onnx(write_onnx(tmp_path, nodes, [1, 3], {"w": np.eye(3, dtype=np.float32) * 1000}))


class Waves(nn.Module):
    """Two layers of sines, steep enough that rounding their arguments far from 0 shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*size) for size in ((3, 8), (8, 8), (8, 1)))
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        return last(torch.sin(second(torch.sin(first(x)))))


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_what_rounding_explains_is_no_difference(tmp_path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    model = Waves().eval()
    lingraft.export_onnx(model, tmp_path / "net.onnx", input_shape=(3,))
    images = torch.rand(5, 3)
    assert torch.allclose(load_onnx(tmp_path / "net.onnx")(images), model(images), atol=1e-3)


def test_a_module_that_knows_float32_only_is_compared_as_it_is(tmp_path: Path) -> None:
    """Its rounding cannot be told in float64, which is no reason to fail, and explains nothing."""

    class Own(nn.Module):
        table = torch.eye(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.table

    lingraft.export_onnx(nn.Sequential(nn.Linear(3, 3)), tmp_path / "net.onnx", input_shape=(3,))
    session = Session((tmp_path / "net.onnx").read_bytes())
    assert disagreement(session, Own(), torch.rand(4, 3), 1) > IMPORT_TOLERANCE
