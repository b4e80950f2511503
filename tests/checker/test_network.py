"""Reading ONNX without the onnx package: the same outputs as onnxruntime, and the same neurons as the verifier."""

import subprocess
import sys
from contextlib import suppress
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from torch import nn

import lingraft
from lingraft.checker.network import exact_product, exact_sum, inner_places
from lingraft.checker.nodes import Site
from lingraft.checker.onnx_reader import load_network
from lingraft.checker.protobuf import read_graph
from lingraft.errors import LingraftError
from lingraft.formats.certificate_writer import CertificateWriter
from lingraft.model.surgery import graft
from lingraft.solver.network import Network

W = np.random.default_rng(0)


def some(*shape: int) -> np.ndarray:
    return W.standard_normal(shape).astype(np.float32)


CASES = {
    "conv": ([("Conv", "x w b", "y", {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]})], [1, 2, 7, 6], {"w": some(3, 2, 3, 2), "b": some(3)}),
    "conv in groups": ([("Conv", "x w", "y", {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]})], [1, 4, 5, 7], {"w": some(6, 2, 2, 3)}),
    "same lower": ([("Conv", "x w", "y", {"auto_pad": "SAME_LOWER"})], [1, 1, 4, 5], {"w": some(1, 1, 2, 2)}),
    "gemm": ([("Gemm", "x w b", "y", {"alpha": 0.3, "beta": -2.0})], [1, 5], {"w": some(5, 3), "b": some(1, 3)}),
    "matmul and add": ([("MatMul", "x w", "z"), ("Add", "b z", "y")], [1, 4], {"w": some(4, 3), "b": some(3)}),
    "batch norm": ([("BatchNormalization", "x s b m v", "y", {"epsilon": 0.01})], [1, 2, 3, 3], {"s": some(2), "b": some(2), "m": some(2), "v": abs(some(2))}),
    "flat batch norm": ([("BatchNormalization", "x s b m v", "y")], [1, 3], {"s": some(3), "b": some(3), "m": some(3), "v": abs(some(3))}),
    "arithmetic": ([("Sub", "c x", "a"), ("Div", "a d", "e"), ("Mul", "e d", "f"), ("Sub", "f c", "g"), ("Neg", "g", "y")], [1, 2, 2, 3], {"c": some(2, 1, 1), "d": some(1, 2, 2, 3)}),
    "leaky": ([("LeakyRelu", "x", "a", {"alpha": -0.25}), ("Mul", "a c", "b"), ("LeakyRelu", "b", "y")], [1, 6], {"c": some(6)}),
    "prelu": ([("PRelu", "x s", "a"), ("PRelu", "a t", "y")], [1, 3, 2, 2], {"s": some(3, 1, 1), "t": some(1)}),
    "clip": ([("Clip", "x l h", "a"), ("Mul", "a c", "b"), ("Clip", "b l", "y")], [1, 6], {"c": 3 * some(6), "l": np.float32(-0.4), "h": np.float32(0.7)}),
    "hard sigmoid": ([("HardSigmoid", "x", "a"), ("Mul", "a c", "b"), ("HardSigmoid", "b", "y", {"alpha": 1 / 6, "beta": 0.4})], [1, 6], {"c": 9 * some(6)}),
    "abs": ([("Add", "x c", "a"), ("Abs", "a", "y")], [1, 6], {"c": some(6)}),
    "residual": ([("Relu", "x", "r"), ("Conv", "r w", "a", {"pads": [1, 1, 1, 1]}), ("Add", "a r", "b"), ("Relu", "b", "c"), ("Sub", "c x", "y")], [1, 2, 4, 4], {"w": some(2, 2, 3, 3)}),
    "max pool": ([("MaxPool", "x", "y", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]})], [1, 2, 6, 5], {}),
    "dilated max pool": ([("MaxPool", "x", "y", {"kernel_shape": [2, 2], "dilations": [2, 1]})], [1, 1, 5, 4], {}),
    "average pool": ([("AveragePool", "x", "y", {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [0, 1, 0, 1], "count_include_pad": 1})], [1, 2, 4, 6], {}),
    "global average": ([("GlobalAveragePool", "x", "y")], [1, 3, 4, 5], {}),
    "flatten": ([("Flatten", "x", "f"), ("Gemm", "f w", "y", {"transB": 1})], [1, 2, 3, 4], {"w": some(3, 24)}),
    "reshape": ([("Reshape", "x s", "a"), ("Transpose", "a", "y", {"perm": [0, 2, 3, 1]})], [1, 2, 3, 4], {"s": np.array([0, 4, -1, 2])}),
    "squeeze": ([("Unsqueeze", "x a", "b"), ("Squeeze", "b a", "y")], [1, 2, 3, 2], {"a": np.array([2])}),
    "concat": ([("Relu", "x", "r"), ("Concat", "x r x", "y", {"axis": 1})], [1, 2, 2, 3], {}),
    "pad": ([("Pad", "x p", "q"), ("Conv", "q w", "y", {"pads": [0, 1, 0, 0]})], [1, 1, 4, 4], {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "w": some(2, 1, 3, 3)}),
    "pad of channels": ([("Pad", "x p", "y")], [1, 2, 3, 3], {"p": np.array([0, 1, 1, 2, 0, 0, 0, 1])}),
    "shape": ([("Shape", "x", "s"), ("Gather", "s i", "n"), ("Unsqueeze", "n z", "u"), ("Concat", "u m", "t", {"axis": 0}), ("Reshape", "x t", "y")], [1, 2, 3, 1], {"i": np.array(0), "z": np.array([0]), "m": np.array([-1])}),
    "dropout": ([("Identity", "x", "a"), ("Dropout", "a", "y")], [1, 3], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_onnxruntimes(written, evaluate, tmp_path, case):
    nodes, shape, weights = CASES[case]
    network = written(nodes, shape, weights)
    session = onnxruntime.InferenceSession(str(tmp_path / "made.onnx"))
    for _ in range(3):
        x = some(*shape)
        expected = session.run(None, {"x": x})[0].reshape(-1)
        np.testing.assert_allclose(evaluate(network, x[0])[-1].reshape(-1), expected, rtol=1e-4, atol=1e-4)


def test_a_dilated_average_is_onnxruntimes(written, evaluate, tmp_path):
    """Since operator set 19. The global average hides the shape, by which a mistake would be noticed."""
    pool = {
        "kernel_shape": [2, 3],
        "dilations": [3, 2],
        "strides": [2, 1],
        "pads": [0, 1, 1, 0],
        "count_include_pad": 1,
    }
    nodes = [("AveragePool", "x", "a", pool), ("GlobalAveragePool", "a", "y")]
    network = written(nodes, [1, 2, 6, 7], opset=19)
    x = some(1, 2, 6, 7)
    expected = onnxruntime.InferenceSession(str(tmp_path / "made.onnx")).run(None, {"x": x})[0].reshape(-1)
    np.testing.assert_allclose(evaluate(network, x[0])[-1].reshape(-1), expected, rtol=1e-4, atol=1e-5)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.one, self.two = nn.ReLU(), nn.ReLU()

    def forward(self, x):
        return self.two(self.second(self.one(self.first(x))) + x)


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.LeakyReLU(0.1),
        Residual(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 10),
        nn.BatchNorm1d(10),
        nn.ReLU(),
        nn.Linear(10, 8),
        nn.ReLU(),
        nn.Linear(8, 4),
    ).eval()


def grafted(share: float) -> nn.Module:
    """With random neurons grafted; of the last activation all of them."""
    plain = model()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        sites = {site.name: site.shape for site in lingraft.sites(plain, (1, 8, 8))}
    masks = {name: torch.rand(shape, generator=generator) < share for name, shape in sites.items()}
    last = list(masks)[-1]
    masks[last] = torch.ones_like(masks[last])
    result = graft(plain, masks, slope=0.4, intercept=0.2)
    return result.eval()


@pytest.mark.parametrize("form", ["output", "input"])
def test_sites_are_the_verifiers_in_order_and_layout(checked, evaluate, tmp_path, form):
    """The k-th activation of the file is the verifier's k-th site, for the model and for what load_onnx reads."""
    net = grafted(0.5)
    network = checked(net, (1, 8, 8), form=form)
    x = torch.rand(1, 1, 8, 8)
    mine = evaluate(network, x[0].numpy())
    for seen in (net, lingraft.load_onnx(tmp_path / "net.onnx")):
        theirs = Network.from_module(seen, (1, 8, 8))
        numbers = CertificateWriter(theirs, network).numbers
        values = theirs.values(x.double())
        assert sorted(numbers.values()) == list(numbers.values())
        for position, number in numbers.items():
            site, node = theirs.nodes[position], network.nodes[network.sites[number]]
            assert isinstance(node, Site)
            kept = ~site.grafted.flatten().numpy()
            z = values[site.inputs[0]].flatten().numpy()[kept]
            np.testing.assert_allclose(mine[node.inputs[0]].reshape(-1)[kept], z, rtol=1e-5, atol=1e-5)


def test_grafted_neurons_do_not_bend(checked):
    net = grafted(0.5)
    network = checked(net, (1, 8, 8))
    first = network.nodes[network.sites[0]]
    mask = next(m for m in net.modules() if hasattr(m, "mask")).mask.numpy()
    assert np.array_equal(first.bend.transpose(2, 0, 1) == 0, mask)


def test_places_are_those_of_the_file():
    places = inner_places((2, 3, 4))
    assert places[0] == 0
    assert places[1] == 2  # the next pixel of the row is two channels further
    assert places[12] == 1  # the second channel of the first pixel


@pytest.mark.parametrize(
    ("nodes", "weights", "message"),
    [
        ([("Sigmoid", "x", "y")], {}, "piecewise-linear"),
        ([("Mul", "x x", "y")], {}, "product of two values"),
        ([("Clip", "x a b", "y")], {"a": np.float32(1), "b": np.float32(1)}, "range from 1.0 to 1.0"),
        ([("Clip", "x a", "y")], {"a": some(2)}, "single number"),
        ([("HardSigmoid", "x", "y", {"alpha": -1.0})], {}, "a slope of -1.0"),
        ([("PRelu", "x s", "y")], {"s": np.full(1, 1e-12, np.float32)}, "slope so small"),
        ([("Softplus", "x", "y")], {}, "piecewise-linear"),
        ([("Div", "c x", "y")], {"c": some(1)}, "must depend on the input"),
        ([("Relu", "q", "y")], {}, "not known"),
        ([("Add", "x c", "y")], {"c": some(2, 1, 2, 3, 3)}, "shape"),
        (
            [
                (
                    "AveragePool",
                    "x",
                    "y",
                    {"kernel_shape": [2, 2], "ceil_mode": 1, "pads": [1] * 4, "count_include_pad": 1},
                )
            ],
            {},
            "ceil_mode",
        ),
        ([("Slice", "x i j", "y")], {"i": np.array([3]), "j": np.array([2])}, "holds nothing"),
        ([("Split", "x s", "y z", {"axis": 2})], {"s": np.array([1, 2])}, "parts of"),
        ([("ReduceMean", "x", "y", {"axes": [0, 2]})], {}, "batch dimension"),
        ([("Cast", "x", "y", {"to": TensorProto.DOUBLE})], {}, "rounds"),
        ([("Concat", "x c", "y", {"axis": 1})], {"c": np.ones((1, 1, 4, 4), np.int64)}, "type int64"),
        ([("Conv", "x w", "y", {"auto_pad": "VALID", "pads": [1] * 4})], {"w": some(1, 2, 3, 3)}, "as well as VALID"),
        ([("Add", "c c", "d"), ("Add", "x d", "y")], {"c": some(1)}, "not integers"),
        ([("Conv", "x w", "y")], {"w": some(1, 5, 3, 3)}, "groups"),
        ([("Conv", "x w", "y")], {"w": some(1, 2, 9, 9)}, "larger than the image"),
        ([("Flatten", "x", "y", {"surprise": 1})], {}, "surprise"),
        ([("Relu", "x", "y")], {"c": np.array([np.inf], np.float32)}, "infinity"),
    ],
)
def test_what_is_not_understood_is_refused(written, nodes, weights, message):
    with pytest.raises(LingraftError, match=message):
        written(nodes, [1, 2, 4, 4], weights)


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("file") / "net.onnx"
    lingraft.export_onnx(model(), path, input_shape=(1, 8, 8))
    return path.read_bytes()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_a_clear_error_or_another_network(content, tmp_path_factory, data):
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "net.onnx"
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged)
    with suppress(LingraftError):  # anything else is a crash
        load_network(path)


def test_one_field_twice_is_refused(content):
    with pytest.raises(LingraftError, match="more than once"):
        read_graph(content + content)


def test_neither_torch_nor_onnx_nor_the_verifier_is_imported():
    code = (
        "import sys, lingraft.checker.check, lingraft.cli.check;"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'onnx', 'onnxruntime')"
        " or m.startswith(('lingraft.solver', 'lingraft.formats', 'lingraft.grafting', 'lingraft.model', 'lingraft.work'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


numbers = st.one_of(st.floats(-1e9, 1e9, width=32), st.floats(-1e9, 1e9), st.sampled_from([0.0, 1.0, -1.0, 0.5]))


@settings(max_examples=300, deadline=None)
@given(numbers, numbers)
def test_exactness_is_told_exactly(a, b):
    one, other = np.array([a]), np.array([b])
    assert exact_sum(one, other) == (Fraction(a + b) == Fraction(a) + Fraction(b))
    if exact_product(one, other):
        assert Fraction(a * b) == Fraction(a) * Fraction(b)
    assert (
        exact_product(np.array([float(np.float32(a))]), np.array([float(np.float32(b))]))
        or 0 < min(abs(a), abs(b)) < 1e-44
    )
