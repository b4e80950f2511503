"""What an ONNX file could mean in two ways is refused: the network that is checked is the one that runs."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from handmade_onnx import floats, onnx_bytes
from onnx import TensorProto, helper

from lingraft.checker.onnx_reader import load_network, network_of
from lingraft.checker.protobuf import read_graph
from lingraft.errors import LingraftError

F = TensorProto.FLOAT


LEAKY = onnx_bytes([helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)], [1, 3], {})


# --- nodes ------------------------------------------------------------------------------------------------------------

MAKE = helper.make_node
NORM = {name: np.ones(2, np.float32) for name in "sbmv"}
TRAINING = MAKE("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2", "s2", "s3"])

REFUSED: dict[str, tuple[bytes, str]] = {
    "batch norm in training": (onnx_bytes([TRAINING], [1, 2, 3, 3], NORM, opset=9), "5 outputs"),
    "strides beyond the kernel": (
        onnx_bytes([MAKE("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[3, 3])], [1, 1, 6, 6],
                {"w": floats(1, 1, 2, 2)}), "stride larger",
    ),
    "padding of a dilated kernel by name": (
        onnx_bytes([MAKE("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", dilations=[2, 2])], [1, 1, 5, 5],
                {"w": floats(1, 1, 2, 2)}), "dilations",
    ),
    "an average of padding by name": (
        onnx_bytes([MAKE("AveragePool", ["x"], ["y"], auto_pad="SAME_UPPER", kernel_shape=[2, 2], count_include_pad=1)],
                [1, 1, 5, 5], {}), "auto_pad",
    ),
    "no axes to squeeze": (
        onnx_bytes([MAKE("Squeeze", ["x", "a"], ["z"]), MAKE("Flatten", ["z"], ["y"])], [1, 1, 3],
                {"a": np.zeros(0, np.int64)}), "none or not different",
    ),
    "an axis twice": (
        onnx_bytes([MAKE("Unsqueeze", ["x", "a"], ["z"]), MAKE("Flatten", ["z"], ["y"])], [1, 3],
                {"a": np.array([1, 1])}), "none or not different",
    ),
    "an axis that is not there": (onnx_bytes([MAKE("Flatten", ["x"], ["y"], axis=7)], [1, 3, 2], {}), "axis 7"),
    "small integers": (
        onnx_bytes([MAKE("Sub", ["x", "c"], ["y"])], [1, 2], {"c": np.array([1, 2], np.uint8)}, kind=TensorProto.UINT8),
        "element type 2",
    ),
    "differences of small integers": (
        onnx_bytes([MAKE("Transpose", ["x"], ["t"], perm=[0, 2, 1]), MAKE("Sub", ["x", "t"], ["z"]),
                 MAKE("Flatten", ["z"], ["y"])], [1, 2, 2], {}, opset=14, kind=TensorProto.UINT8), "element type 2",
    ),
    "no axes of a constant": (  # it would be added to columns, and is added to rows
        onnx_bytes([MAKE("Squeeze", ["c", "a"], ["d"]), MAKE("Add", ["x", "d"], ["z"]), MAKE("Flatten", ["z"], ["y"])],
                [1, 2, 2], {"c": floats(2, 1), "a": np.zeros(0, np.int64)}), "none or not different",
    ),
    "constants of another type": (onnx_bytes([MAKE("Add", ["x", "c"], ["y"])], [1, 2], {"c": np.ones(2)}), "float64"),
    "weights that underflow": (
        onnx_bytes([MAKE("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], [1, 2],
                {"s": np.full(2, 1e-200), "b": np.zeros(2), "m": np.zeros(2), "v": np.full(2, 1e300)},
                kind=TensorProto.DOUBLE), "too small",
    ),
    "statistics for fewer channels": (
        onnx_bytes([MAKE("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], [1, 2],
                {name: np.ones(1, np.float32) for name in "sbmv"}), "one number a channel",
    ),
    "an old operator set": (onnx_bytes([MAKE("Relu", ["x"], ["y"])], [1, 2], {}, opset=6), "operator set 6"),
    "one of tomorrow": (onnx_bytes([MAKE("Relu", ["x"], ["y"])], [1, 2], {}, opset=99), "operator set 99"),
    "an input of another set": (
        onnx_bytes([MAKE("Squeeze", ["x"], ["z"], axes=[1]), MAKE("Flatten", ["z"], ["y"])], [1, 1, 3], {}, opset=13),
        "attribute axes",
    ),
    "an attribute of another set": (
        onnx_bytes([MAKE("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=0)], [1, 1, 4, 4], {}, opset=9),
        "attribute ceil_mode",
    ),
    "an attribute of another type": (onnx_bytes([MAKE("Flatten", ["x"], ["y"], axis=1.0)], [1, 2], {}), "type integer"),
    "a name that is taken": (
        onnx_bytes([MAKE("Dropout", ["x"], ["a", "m"]), MAKE("Relu", ["a"], ["m"]), MAKE("Relu", ["a"], ["y"])], [1, 2], {}),
        "there already",
    ),
    "the mask of dropout": (
        onnx_bytes([MAKE("Dropout", ["x"], ["a", "m"]), MAKE("Add", ["a", "m"], ["y"])], [1, 2], {}), "second output",
    ),
    "dropout in training": (
        onnx_bytes([MAKE("Dropout", ["x", "r", "t"], ["y"])], [1, 2], {"r": np.float32([0.5])[0], "t": np.array(True)}),
        "training mode",
    ),
    "a sparse slice": (
        onnx_bytes([MAKE("Slice", ["c", "s", "e", "a", "z"], ["d"]), MAKE("Add", ["x", "d"], ["y"])], [1, 2],
                {"c": floats(4), "s": np.array([0]), "e": np.array([4]), "a": np.array([0]), "z": np.array([0])}),
        "step of 0",
    ),
    "an axis from the end before there were any": (
        onnx_bytes([MAKE("Unsqueeze", ["x"], ["z"], axes=[-1]), MAKE("Flatten", ["z"], ["y"])], [1, 2], {}, opset=9),
        "from the end",
    ),
    "zeros around a pooling": (
        onnx_bytes([MAKE("Pad", ["x", "p"], ["z"]), MAKE("MaxPool", ["z"], ["y"], kernel_shape=[2, 1])], [1, 1, 1, 1],
                {"p": np.array([0, 0, 0, 0, 0, 0, 1, 0])}), "zeros around",
    ),
    "numbers that are none": (
        onnx_bytes([MAKE("Constant", [], ["c"], value_floats=[1.0, float("nan")]), MAKE("Add", ["x", "c"], ["y"])], [1, 2], {}),
        "NaN or infinity",
    ),
    "parts that would be repeated": (
        onnx_bytes([MAKE("Flatten", ["x"], ["f"]), MAKE("Unsqueeze", ["f", "a"], ["u"]),
                 MAKE("Concat", ["x", "u"], ["z"], axis=2), MAKE("Flatten", ["z"], ["y"])], [1, 2, 3],
                {"a": np.array([1])}), "do not fit together",
    ),
    "no kernel at all": (onnx_bytes([MAKE("Conv", ["x", "w"], ["y"])], [1, 1, 3, 3], {"w": floats(1, 1, 0, 3)}), "empty"),
    "no outputs": (onnx_bytes([MAKE("Gemm", ["x", "w"], ["y"])], [1, 3], {"w": floats(3, 0)}), "empty"),
    "outputs that were cut away": (
        onnx_bytes([MAKE("Slice", ["w", "z", "z", "one"], ["v"]), MAKE("Gemm", ["x", "v"], ["y"])], [1, 3],
                {"w": floats(3, 2), "z": np.array([0]), "one": np.array([1])}), "empty",
    ),
    "an image of seventy dimensions": (onnx_bytes([MAKE("Relu", ["x"], ["y"])], [1] * 70, {}), "too large"),
    "integers that overflow": (
        onnx_bytes([MAKE("Mul", ["n", "n"], ["m"]), MAKE("Reshape", ["x", "m"], ["y"])], [1, 2],
                {"n": np.array([2**33, 2])}), "overflow",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_nodes_that_could_mean_another_thing(case: str) -> None:
    data, message = REFUSED[case]
    with pytest.raises(LingraftError, match=message):
        network_of(data, "made")


# --- sizes ------------------------------------------------------------------------------------------------------------


def large_constants() -> bytes:
    """1.4 kB that ask for gigabytes."""
    nodes = [MAKE("ConstantOfShape", ["s"], [f"c{i}"]) for i in range(30)]
    return onnx_bytes([*nodes, MAKE("Relu", ["x"], ["y"])], [1, 2], {"s": np.array([1 << 27])})


def many_values() -> bytes:
    """Sums, one behind the other, of an image with 16 million pixels."""
    names = ["x", *(f"h{i}" for i in range(99)), "y"]
    nodes = [MAKE("Add", [a, "c"], [b]) for a, b in pairwise(names)]
    return onnx_bytes(nodes, [1, 1 << 24], {"c": np.ones(1, np.float32)})


def many_moves() -> bytes:
    names = ["x", *(f"h{i}" for i in range(2000)), "y"]
    nodes = [MAKE("Transpose", [a], [b], perm=[0, 1, 2]) for a, b in pairwise(names)]
    return onnx_bytes(nodes, [1, 1 << 12, 1 << 12], {})


def wide_windows() -> bytes:
    nodes = [MAKE("ConstantOfShape", ["s"], ["w"]), MAKE("Conv", ["x", "w"], ["y"], pads=[500] * 4)]
    return onnx_bytes(nodes, [1, 1, 1000, 1000], {"s": np.array([1, 1, 1000, 1000])})


def channels_by_themselves() -> bytes:
    """As many groups as channels: as a dense matrix it would be 10 GiB."""
    weights = {"w": np.ones((12000, 1, 3, 3), np.float32)}
    return onnx_bytes([MAKE("Conv", ["x", "w"], ["y"], group=12000)], [1, 12000, 3, 3], weights)


def many_fields() -> bytes:
    """A comment, two million times."""
    return LEAKY + b"\x72\x00" * 2_000_000


def many_parts() -> bytes:
    """As many parts joined to a vector: each has a place in all of it."""
    return onnx_bytes([MAKE("Concat", ["x"] * 20_000, ["y"], axis=1)], [1, 2], {})


def many_nodes() -> bytes:
    names = ["x", *(f"h{i}" for i in range(20_000)), "y"]
    return onnx_bytes([MAKE("Relu", [a], [b]) for a, b in pairwise(names)], [1, 2], {})


@contextmanager
def at_most(memory: int) -> Iterator[None]:
    """Asking for more than that beyond what is used now is a MemoryError."""
    resource = pytest.importorskip("resource", reason="this system has no limits of memory")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    now = next(line for line in Path("/proc/self/status").read_text().split("\n") if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (int(now.split()[1]) * 1024 + memory, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@pytest.mark.parametrize(
    "make",
    [large_constants, many_values, many_moves, wide_windows, channels_by_themselves, many_fields, many_parts, many_nodes],
)  # fmt: skip
def test_what_asks_for_much_is_answered_soon(make: Callable[[], bytes]) -> None:
    data = make()
    started = time.process_time()
    with at_most(1 << 30):
        if make is channels_by_themselves:
            assert network_of(data, "made").nodes[1].groups == 12000
        else:
            with pytest.raises(LingraftError, match=r"too large|too many|more than"):
                network_of(data, "made")
    assert time.process_time() - started < 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_special_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (tmp_path / "pipe.onnx", Path("/dev/zero"), tmp_path):
        with pytest.raises(LingraftError, match="cannot read"):
            load_network(path)


def test_the_same_file_is_read_in_the_same_way() -> None:
    graph = read_graph(LEAKY)
    assert (graph.version, graph.inputs, graph.outputs) == (13, {"x": (1, [1, 3])}, ["y"])


def test_a_mistake_in_the_reader_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingraft.checker.onnx_reader.read_graph", lambda data, beside: 1 / 0)
    with pytest.raises(LingraftError, match="mistake in lingraft"):
        network_of(LEAKY, "made")
