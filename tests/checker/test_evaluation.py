"""The checker's own evaluation holds the real outputs, and is compared with the program that runs the network."""

import tracemalloc
from fractions import Fraction

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lingraft.checker.evaluation import enclosure, noise, outputs
from lingraft.checker.network import inner
from lingraft.checker.onnx_reader import load_network, network_of
from lingraft.checker.runtime import Runtime, compare
from lingraft.errors import LingraftError


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1.0, 1e6]))
def test_the_real_outputs_are_enclosed(seed: int, scale: float) -> None:
    """In rational arithmetic, of a network with all that is exact and all that is not."""
    random = np.random.default_rng(seed)
    w, v = (random.standard_normal(shape).astype(np.float32) * np.float32(scale) for shape in ((4, 3), (4, 2)))
    s, m, var = random.standard_normal(4), random.standard_normal(4), random.random(4)
    arrays = {"w": w.T, "v": v, "s": s, "b": s[::-1], "m": m, "n": var, "d": 3 + random.random(2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "n"], ["c"]),
        helper.make_node("LeakyRelu", ["c"], ["e"], alpha=0.25),
        helper.make_node("MatMul", ["e", "v"], ["f"]),
        helper.make_node("Div", ["f", "d"], ["y"]),
    ]
    network = network_of(_bytes(nodes, [1, 3], arrays), "made")
    x = random.standard_normal(3).astype(np.float32)
    exact = [Fraction(float(n)) for n in x]
    a = [sum(Fraction(float(w[i, j])) * exact[j] for j in range(3)) for i in range(4)]
    h = []
    for i in range(4):
        # √ is irrational: a rational number that is closer to it than any bound that is tested
        total = Fraction(float(np.float32(var[i]))) + Fraction(float(np.float32(1e-5)))
        root = Fraction(_root(total.numerator * 10**80 * total.denominator), 10**40 * total.denominator)
        z = (a[i] - Fraction(float(np.float32(m[i])))) / root * Fraction(float(np.float32(s[i])))
        z += Fraction(float(np.float32(s[::-1][i])))
        h.append(z if z > 0 else z / 4)
    low, high = enclosure(network, x.astype(np.float64))
    for k in range(2):
        y = sum(Fraction(float(v[i, k])) * h[i] for i in range(4)) / Fraction(float(np.float32(arrays["d"][k])))
        assert Fraction(float(low[k])) <= y <= Fraction(float(high[k]))
        assert high[k] - low[k] < 1e-10 * scale * max(1, scale)


def _root(n: int) -> int:
    root = int(n**0.5) if n < 2**1000 else 1 << (n.bit_length() // 2)
    for _ in range(200):
        root = (root + n // root) // 2
    return root


def _bytes(nodes: list, shape: list[int], weights: dict[str, np.ndarray], opset: int = 13) -> bytes:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ascontiguousarray(a, np.float32), name) for name, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7).SerializeToString()


def _convolutional() -> bytes:
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["a"], ["b"], alpha=0.2),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("Gemm", ["c", "v"], ["y"]),
    ]
    return _bytes(
        nodes, [1, 2, 4, 4], {"w": random.standard_normal((3, 2, 3, 3)), "v": random.standard_normal((48, 4))}
    )


def test_the_program_that_runs_it_agrees() -> None:
    content = _convolutional()
    network = network_of(content, "made")
    low = inner(np.random.default_rng(1).random((2, 4, 4)))
    assert compare(network, Runtime(content), low, low + 0.1, np.eye(4)) >= 8


@pytest.mark.parametrize("slope", [0.0, 0.1999])
def test_another_function_is_noticed(slope: float) -> None:
    """A reader that took the slope for another one, even a close one."""
    model = onnx.load_from_string(_convolutional())
    model.graph.node[1].attribute[0].f = slope
    network = network_of(model.SerializeToString(), "misread")
    low = inner(np.random.default_rng(1).random((2, 4, 4)))
    with pytest.raises(LingraftError, match="another function"):
        compare(network, Runtime(_convolutional()), low, low + 0.1, np.eye(4))


def test_many_margins_are_not_all_followed_back() -> None:
    """40,000 of them about 4,000 pixels, in a certificate of a few kB: as rows over the image, more than 1 GiB."""
    content = _bytes([helper.make_node("Gemm", ["x", "w"], ["y"])], [1, 4000], {"w": np.ones((4000, 1))})
    network, runtime = network_of(content, "made"), Runtime(content)
    tracemalloc.start()
    assert compare(network, runtime, np.zeros(4000), np.ones(4000), np.ones((40_000, 1))) >= 7
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


def test_what_does_not_run_is_said() -> None:
    with pytest.raises(LingraftError, match="onnxruntime cannot run the network"):
        Runtime(b"nothing")


def test_rounding_is_expected_as_large_as_it_is(problems_folder) -> None:
    """Not so small that it is exceeded, not so large that nothing is noticed."""
    random = np.random.default_rng(0)
    for path in sorted(problems_folder.glob("*/model.onnx")):
        network, runtime = load_network(path), Runtime(path.read_bytes())
        x = random.random(network.shape).astype(np.float32)
        point = inner(x.astype(np.float64))
        value = outputs(network, point)
        usual = noise(network, point, runtime.unit, random).max()
        assert np.abs(runtime.outputs(x) - value).max() < 4 * usual < 1e-3 * np.abs(value).max(), path
        low, high = enclosure(network, point)
        assert (low < value).all()
        assert (value < high).all()
        assert (high - low).max() < 1e-6
        assert compare(network, runtime, np.maximum(point - 0.01, 0), point + 0.01, np.eye(len(value))) >= 7
