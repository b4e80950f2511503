"""The program that runs a network agrees with what the checker reads."""

import tracemalloc

import numpy as np
import onnx
import pytest
from handmade_onnx import onnx_bytes
from onnx import helper

from lingraft.checker.evaluation import enclosure, noise, outputs
from lingraft.checker.network import inner
from lingraft.checker.onnx_reader import load_network, network_of
from lingraft.checker.runtime import Runtime, compare
from lingraft.errors import LingraftError


def _convolutional() -> bytes:
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["a"], ["b"], alpha=0.2),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("Gemm", ["c", "v"], ["y"]),
    ]
    weights = {"w": random.standard_normal((3, 2, 3, 3)), "v": random.standard_normal((48, 4))}
    return onnx_bytes(nodes, [1, 2, 4, 4], {name: array.astype(np.float32) for name, array in weights.items()})


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
    content = onnx_bytes(
        [helper.make_node("Gemm", ["x", "w"], ["y"])], [1, 4000], {"w": np.ones((4000, 1), np.float32)}
    )
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
