"""What an ONNX file could mean in two ways is refused: the network that is checked is the one that runs."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from lingraft.checker.evaluation import outputs
from lingraft.checker.network import inner
from lingraft.checker.onnx_reader import load_network, network_of
from lingraft.checker.operations import RULES
from lingraft.checker.protobuf import read_graph
from lingraft.checker.rows import Rows
from lingraft.errors import LingraftError

F = TensorProto.FLOAT


def content(
    nodes: list[Any], shape: list[int], weights: dict[str, np.ndarray], opset: int = 13, kind: int = F, ir: int = 7
) -> bytes:
    """The file of a network from `x` to `y`."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir).SerializeToString()


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# --- bytes ------------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, wire: int, value: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(value)) if wire == 2 else b"") + value


def with_more(data: bytes, path: list[tuple[int, int]], more: bytes) -> bytes:
    """`data` with bytes appended to a message inside: `path` has field numbers and which of several is meant."""
    if not path:
        return data + more
    (number, which), *rest = path
    result, position, seen = b"", 0, 0
    while position < len(data):
        start = position
        key, position = _read(data, position)
        length = {0: 0, 1: 8, 5: 4}.get(key & 7, -1)
        if not length:
            _, position = _read(data, position)
        elif length < 0:
            length, position = _read(data, position)
        end = position + length
        if key >> 3 == number and key & 7 == 2:
            if seen == which:
                result += field(number, 2, with_more(data[position:end], rest, more))
                start = end
            seen += 1
        result, position = result + data[start:end], end
    return result


def _read(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


GRAPH, NODE, ATTRIBUTE, TENSOR = (7, 0), (1, 0), (5, 0), (5, 0)
LEAKY = content([helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)], [1, 3], {})
GEMM = content([helper.make_node("Gemm", ["x", "w"], ["y"], alpha=1.0)], [1, 3], {"w": floats(3, 2), "b": floats(2)})

AMBIGUOUS = {
    "a number twice": (LEAKY, [GRAPH, NODE, ATTRIBUTE], field(2, 5, np.float32(0.5).tobytes()), "more than once"),
    "a factor twice": (GEMM, [GRAPH, NODE, ATTRIBUTE], field(2, 5, np.float32(1).tobytes()), "more than once"),
    "a number as bytes": (LEAKY, [GRAPH, NODE, ATTRIBUTE], field(2, 2, np.float32(0).tobytes()), "wire type 2"),
    "a name of four bytes": (GEMM, [GRAPH, NODE], field(1, 5, b"b\0\0\0"), "wire type 5"),
    "weights of four bytes": (
        content([helper.make_node("Mul", ["x", "c"], ["y"])], [1, 1], {"c": floats(1)}),
        [GRAPH, TENSOR], field(9, 5, np.float32(9).tobytes()), "wire type 5",
    ),
    "weights twice": (GEMM, [GRAPH, TENSOR], field(4, 2, bytes(24)), "more than one"),
    "a message twice": (GEMM, [], field(7, 2, b""), "more than once"),
    "functions": (GEMM, [], field(25, 2, b""), "field 25"),
    "training": (GEMM, [], field(20, 2, b""), "field 20"),
    "sparse weights": (GEMM, [GRAPH], field(15, 2, b""), "field 15"),
    "a field of tomorrow": (GEMM, [GRAPH, NODE], field(77, 0, b"\1"), "field 77"),
    "an attribute of two types": (LEAKY, [GRAPH, NODE, ATTRIBUTE], field(3, 0, b"\1"), "one value, of its type"),
    "an attribute that is a reference": (LEAKY, [GRAPH, NODE, ATTRIBUTE], field(21, 2, b"a"), "field 21"),
    "another overload": (LEAKY, [GRAPH, NODE], field(8, 2, b"a"), "field 8"),
    "two operator sets": (LEAKY, [], field(8, 2, field(1, 2, b"ai.onnx") + field(2, 0, b"\x0c")), "one standard"),
    "two inputs": (LEAKY, [GRAPH], field(11, 2, field(1, 2, b"x")), "two inputs"),
    "a name that is no text": (LEAKY, [GRAPH, NODE], field(1, 2, b"\xff"), "UTF-8"),
    "a number of 65 bits": (LEAKY, [], b"\x28" + b"\xff" * 9 + b"\x02", "64 bits"),
    "a group": (LEAKY, [], b"\x0b", "wire type 3"),
    "field 0": (LEAKY, [], b"\x00\x00", "field 0"),
    "cut short": (LEAKY, [], b"\x12\x7f", "cut short"),
    "a tensor of nothing that NumPy cannot make": (
        LEAKY, [GRAPH],
        field(5, 2, field(1, 2, varint(0) + 2 * varint(2**62)) + field(2, 0, b"\1") + field(8, 2, b"w")), "empty",
    ),
    "an attribute twice": (LEAKY, [GRAPH, NODE], field(5, 2, field(1, 2, b"alpha") + field(20, 0, b"\2") + field(3, 0, b"\1")), "twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_bytes_that_readers_take_differently(case: str) -> None:
    data, path, more, message = AMBIGUOUS[case]
    network_of(data, "good")
    with pytest.raises(LingraftError, match=message):
        network_of(with_more(data, path, more), "made")


def test_such_files_run_elsewhere() -> None:
    """They are no mere nonsense: onnxruntime takes the last number, and skips what has a wrong wire type."""
    data = with_more(LEAKY, [GRAPH, NODE, ATTRIBUTE], field(2, 5, np.float32(0.25).tobytes()))
    x = np.array([[-1.0, 0.5, -2.0]], np.float32)
    (y,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    assert y.tolist() == [[-0.25, 0.5, -0.5]]
    data = with_more(GEMM, [GRAPH, NODE], field(1, 5, b"b\0\0\0"))
    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(onnxruntime.InferenceSession(data).run(None, {"x": x})[0], x @ floats(3, 2), rtol=1e-5)


# --- nodes ------------------------------------------------------------------------------------------------------------

MAKE = helper.make_node
NORM = {name: np.ones(2, np.float32) for name in "sbmv"}
TRAINING = MAKE("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2", "s2", "s3"])

REFUSED: dict[str, tuple[bytes, str]] = {
    "batch norm in training": (content([TRAINING], [1, 2, 3, 3], NORM, opset=9), "5 outputs"),
    "strides beyond the kernel": (
        content([MAKE("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[3, 3])], [1, 1, 6, 6],
                {"w": floats(1, 1, 2, 2)}), "stride larger",
    ),
    "padding of a dilated kernel by name": (
        content([MAKE("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", dilations=[2, 2])], [1, 1, 5, 5],
                {"w": floats(1, 1, 2, 2)}), "dilations",
    ),
    "an average of padding by name": (
        content([MAKE("AveragePool", ["x"], ["y"], auto_pad="SAME_UPPER", kernel_shape=[2, 2], count_include_pad=1)],
                [1, 1, 5, 5], {}), "auto_pad",
    ),
    "no axes to squeeze": (
        content([MAKE("Squeeze", ["x", "a"], ["z"]), MAKE("Flatten", ["z"], ["y"])], [1, 1, 3],
                {"a": np.zeros(0, np.int64)}), "none or not different",
    ),
    "an axis twice": (
        content([MAKE("Unsqueeze", ["x", "a"], ["z"]), MAKE("Flatten", ["z"], ["y"])], [1, 3],
                {"a": np.array([1, 1])}), "none or not different",
    ),
    "an axis that is not there": (content([MAKE("Flatten", ["x"], ["y"], axis=7)], [1, 3, 2], {}), "axis 7"),
    "small integers": (
        content([MAKE("Sub", ["x", "c"], ["y"])], [1, 2], {"c": np.array([1, 2], np.uint8)}, kind=TensorProto.UINT8),
        "element type 2",
    ),
    "differences of small integers": (
        content([MAKE("Transpose", ["x"], ["t"], perm=[0, 2, 1]), MAKE("Sub", ["x", "t"], ["z"]),
                 MAKE("Flatten", ["z"], ["y"])], [1, 2, 2], {}, opset=14, kind=TensorProto.UINT8), "element type 2",
    ),
    "no axes of a constant": (  # it would be added to columns, and is added to rows
        content([MAKE("Squeeze", ["c", "a"], ["d"]), MAKE("Add", ["x", "d"], ["z"]), MAKE("Flatten", ["z"], ["y"])],
                [1, 2, 2], {"c": floats(2, 1), "a": np.zeros(0, np.int64)}), "none or not different",
    ),
    "constants of another type": (content([MAKE("Add", ["x", "c"], ["y"])], [1, 2], {"c": np.ones(2)}), "float64"),
    "weights that underflow": (
        content([MAKE("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], [1, 2],
                {"s": np.full(2, 1e-200), "b": np.zeros(2), "m": np.zeros(2), "v": np.full(2, 1e300)},
                kind=TensorProto.DOUBLE), "too small",
    ),
    "statistics for fewer channels": (
        content([MAKE("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], [1, 2],
                {name: np.ones(1, np.float32) for name in "sbmv"}), "one number a channel",
    ),
    "an old operator set": (content([MAKE("Relu", ["x"], ["y"])], [1, 2], {}, opset=6), "operator set 6"),
    "one of tomorrow": (content([MAKE("Relu", ["x"], ["y"])], [1, 2], {}, opset=99), "operator set 99"),
    "an input of another set": (
        content([MAKE("Squeeze", ["x"], ["z"], axes=[1]), MAKE("Flatten", ["z"], ["y"])], [1, 1, 3], {}, opset=13),
        "attribute axes",
    ),
    "an attribute of another set": (
        content([MAKE("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=0)], [1, 1, 4, 4], {}, opset=9),
        "attribute ceil_mode",
    ),
    "an attribute of another type": (content([MAKE("Flatten", ["x"], ["y"], axis=1.0)], [1, 2], {}), "type integer"),
    "a name that is taken": (
        content([MAKE("Dropout", ["x"], ["a", "m"]), MAKE("Relu", ["a"], ["m"]), MAKE("Relu", ["a"], ["y"])], [1, 2], {}),
        "there already",
    ),
    "the mask of dropout": (
        content([MAKE("Dropout", ["x"], ["a", "m"]), MAKE("Add", ["a", "m"], ["y"])], [1, 2], {}), "second output",
    ),
    "dropout in training": (
        content([MAKE("Dropout", ["x", "r", "t"], ["y"])], [1, 2], {"r": np.float32([0.5])[0], "t": np.array(True)}),
        "training mode",
    ),
    "a sparse slice": (
        content([MAKE("Slice", ["c", "s", "e", "a", "z"], ["d"]), MAKE("Add", ["x", "d"], ["y"])], [1, 2],
                {"c": floats(4), "s": np.array([0]), "e": np.array([4]), "a": np.array([0]), "z": np.array([0])}),
        "step of 0",
    ),
    "an axis from the end before there were any": (
        content([MAKE("Unsqueeze", ["x"], ["z"], axes=[-1]), MAKE("Flatten", ["z"], ["y"])], [1, 2], {}, opset=9),
        "from the end",
    ),
    "zeros around a pooling": (
        content([MAKE("Pad", ["x", "p"], ["z"]), MAKE("MaxPool", ["z"], ["y"], kernel_shape=[2, 1])], [1, 1, 1, 1],
                {"p": np.array([0, 0, 0, 0, 0, 0, 1, 0])}), "zeros around",
    ),
    "numbers that are none": (
        content([MAKE("Constant", [], ["c"], value_floats=[1.0, float("nan")]), MAKE("Add", ["x", "c"], ["y"])], [1, 2], {}),
        "NaN or infinity",
    ),
    "parts that would be repeated": (
        content([MAKE("Flatten", ["x"], ["f"]), MAKE("Unsqueeze", ["f", "a"], ["u"]),
                 MAKE("Concat", ["x", "u"], ["z"], axis=2), MAKE("Flatten", ["z"], ["y"])], [1, 2, 3],
                {"a": np.array([1])}), "do not fit together",
    ),
    "no kernel at all": (content([MAKE("Conv", ["x", "w"], ["y"])], [1, 1, 3, 3], {"w": floats(1, 1, 0, 3)}), "empty"),
    "no outputs": (content([MAKE("Gemm", ["x", "w"], ["y"])], [1, 3], {"w": floats(3, 0)}), "empty"),
    "outputs that were cut away": (
        content([MAKE("Slice", ["w", "z", "z", "one"], ["v"]), MAKE("Gemm", ["x", "v"], ["y"])], [1, 3],
                {"w": floats(3, 2), "z": np.array([0]), "one": np.array([1])}), "empty",
    ),
    "an image of seventy dimensions": (content([MAKE("Relu", ["x"], ["y"])], [1] * 70, {}), "too large"),
    "integers that overflow": (
        content([MAKE("Mul", ["n", "n"], ["m"]), MAKE("Reshape", ["x", "m"], ["y"])], [1, 2],
                {"n": np.array([2**33, 2])}), "overflow",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_nodes_that_could_mean_another_thing(case: str) -> None:
    data, message = REFUSED[case]
    with pytest.raises(LingraftError, match=message):
        network_of(data, "made")


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(-9, 9, 1), (-9, -9, -1), (9, -9, -1), (-1, -9, -2), (2, -1, 1), (3, 0, -1), (-9, 9, 3), (1, 2**62, 2), (-9, 3, -1)],
)  # fmt: skip
def test_slices_of_constants_are_onnxruntimes(start: int, end: int, step: int) -> None:
    """Also from before the beginning, where NumPy gives nothing and ONNX the first number; broadcasting hid that."""
    nodes = [MAKE("Slice", ["c", "s", "e", "a", "z"], ["d"]), MAKE("Add", ["x", "d"], ["y"])]
    numbers = {"s": start, "e": end, "a": 0, "z": step}
    weights = {"c": floats(4), **{name: np.array([n]) for name, n in numbers.items()}}
    data, x = content(nodes, [1, 4], weights), np.zeros((1, 4), np.float32)
    try:
        expected = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    except Exception:  # what cannot be added to four numbers
        expected = np.zeros(0)
    if expected.shape != (1, 4):
        with pytest.raises(LingraftError):
            network_of(data, "made")
    else:
        np.testing.assert_array_equal(outputs(network_of(data, "made"), np.zeros(4)), expected[0])


def test_a_slice_that_is_not_empty_is_seen_where_it_is_joined() -> None:
    """Two numbers, of which NumPy has one; that would be added to both outputs."""
    nodes = [MAKE("Slice", ["c", "s", "s", "a", "z"], ["d"]), MAKE("Concat", ["d", "e"], ["f"], axis=0), MAKE("Add", ["x", "f"], ["y"])]  # fmt: skip
    weights = {"c": floats(4), "e": np.full(1, 9, np.float32), "s": np.array([-9]), "a": np.array([0]), "z": np.array([-1])}  # fmt: skip
    data = content(nodes, [1, 2], weights)
    (expected,) = onnxruntime.InferenceSession(data).run(None, {"x": np.zeros((1, 2), np.float32)})
    assert expected[0].tolist() == [float(weights["c"][0]), 9.0]
    np.testing.assert_array_equal(outputs(network_of(data, "made"), np.zeros(2)), expected[0])


def test_a_mistake_in_the_reader_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingraft.checker.onnx_reader.read_graph", lambda data: 1 / 0)
    with pytest.raises(LingraftError, match="mistake in lingraft"):
        network_of(LEAKY, "made")


def test_every_rule_is_of_the_standard() -> None:
    """Attributes, and the number of inputs and outputs, are those that the onnx package knows of the same set."""
    for operation, rules in RULES.items():
        assert [rule.first for rule in rules[1:]] == [rule.last + 1 for rule in rules[:-1]], operation
        for rule in rules:
            for version in range(rule.first, rule.last + 1):
                schema = onnx.defs.get_schema(operation, version)
                assert not schema.deprecated
                known = {name: str(a.type).split(".")[-1] for name, a in schema.attributes.items()}
                types = {"integer": "INT", "integers": "INTS", "float": "FLOAT", "floats": "FLOATS", "text": "STRING",
                         "tensor": "TENSOR"}  # fmt: skip
                for name, kind in rule.attributes.items():
                    assert known[name] == types[kind], (operation, version, name)
                assert len(rule.inputs.split()) <= schema.max_input
                assert rule.outputs <= schema.max_output


# --- sizes ------------------------------------------------------------------------------------------------------------


def large_constants() -> bytes:
    """1.4 kB that ask for gigabytes."""
    nodes = [MAKE("ConstantOfShape", ["s"], [f"c{i}"]) for i in range(30)]
    return content([*nodes, MAKE("Relu", ["x"], ["y"])], [1, 2], {"s": np.array([1 << 27])})


def many_values() -> bytes:
    """Sums, one behind the other, of an image with 16 million pixels."""
    names = ["x", *(f"h{i}" for i in range(99)), "y"]
    nodes = [MAKE("Add", [a, "c"], [b]) for a, b in pairwise(names)]
    return content(nodes, [1, 1 << 24], {"c": np.ones(1, np.float32)})


def many_moves() -> bytes:
    names = ["x", *(f"h{i}" for i in range(2000)), "y"]
    nodes = [MAKE("Transpose", [a], [b], perm=[0, 1, 2]) for a, b in pairwise(names)]
    return content(nodes, [1, 1 << 12, 1 << 12], {})


def wide_windows() -> bytes:
    nodes = [MAKE("ConstantOfShape", ["s"], ["w"]), MAKE("Conv", ["x", "w"], ["y"], pads=[500] * 4)]
    return content(nodes, [1, 1, 1000, 1000], {"s": np.array([1, 1, 1000, 1000])})


def channels_by_themselves() -> bytes:
    """As many groups as channels: as a dense matrix it would be 10 GiB."""
    weights = {"w": np.ones((12000, 1, 3, 3), np.float32)}
    return content([MAKE("Conv", ["x", "w"], ["y"], group=12000)], [1, 12000, 3, 3], weights)


def many_fields() -> bytes:
    """A comment, two million times."""
    return LEAKY + field(14, 2, b"") * 2_000_000


def many_parts() -> bytes:
    """As many parts joined to a vector: each has a place in all of it."""
    return content([MAKE("Concat", ["x"] * 20_000, ["y"], axis=1)], [1, 2], {})


def many_nodes() -> bytes:
    names = ["x", *(f"h{i}" for i in range(20_000)), "y"]
    return content([MAKE("Relu", [a], [b]) for a, b in pairwise(names)], [1, 2], {})


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


def test_groups_are_convolutions_of_their_own() -> None:
    data = content(
        [MAKE("Conv", ["x", "w", "b"], ["y"], group=3, strides=[2, 1], dilations=[1, 2], pads=[1, 2, 0, 1])],
        [1, 6, 5, 6],
        {"w": floats(9, 2, 3, 2), "b": floats(9)},
    )
    network, x = network_of(data, "made"), floats(1, 6, 5, 6)
    (expected,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    node = network.nodes[1]
    np.testing.assert_allclose(node.forward(inner(x[0])).transpose(2, 0, 1), expected[0], rtol=1e-4, atol=1e-5)
    # one value, many values and all values back to the image give the same coefficients
    picked = np.array([0, 7, 40, node.size - 1])
    rows, _ = node.neurons(picked)
    whole = rows[0].whole(node.source).a[0]
    one = np.zeros((1, 4, node.size))
    one[0, np.arange(4), picked] = 1
    again, constant = node.back(Rows(one.reshape(1, 4, *node.shape)))
    np.testing.assert_allclose(again[0].a[0], whole, atol=1e-12)
    values = (whole * inner(x[0].astype(np.float64))).reshape(4, -1).sum(1) + constant[0]
    np.testing.assert_allclose(values, node.forward(inner(x[0].astype(np.float64))).reshape(-1)[picked], rtol=1e-9)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_special_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (tmp_path / "pipe.onnx", Path("/dev/zero"), tmp_path):
        with pytest.raises(LingraftError, match="cannot read"):
            load_network(path)


def test_the_same_file_is_read_in_the_same_way() -> None:
    graph = read_graph(LEAKY)
    assert (graph.version, graph.inputs, graph.outputs) == (13, {"x": (1, [1, 3])}, ["y"])
