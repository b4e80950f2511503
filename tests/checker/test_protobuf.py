"""Bytes that readers of ONNX files take differently are refused."""

import numpy as np
import onnxruntime
import pytest
from handmade_onnx import floats, onnx_bytes
from onnx import helper

from lingraft.checker.onnx_reader import network_of
from lingraft.errors import LingraftError


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


LEAKY = onnx_bytes([helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)], [1, 3], {})


GEMM = onnx_bytes([helper.make_node("Gemm", ["x", "w"], ["y"], alpha=1.0)], [1, 3], {"w": floats(3, 2), "b": floats(2)})


AMBIGUOUS = {
    "a number twice": (LEAKY, [GRAPH, NODE, ATTRIBUTE], field(2, 5, np.float32(0.5).tobytes()), "more than once"),
    "a factor twice": (GEMM, [GRAPH, NODE, ATTRIBUTE], field(2, 5, np.float32(1).tobytes()), "more than once"),
    "a number as bytes": (LEAKY, [GRAPH, NODE, ATTRIBUTE], field(2, 2, np.float32(0).tobytes()), "wire type 2"),
    "a name of four bytes": (GEMM, [GRAPH, NODE], field(1, 5, b"b\0\0\0"), "wire type 5"),
    "weights of four bytes": (
        onnx_bytes([helper.make_node("Mul", ["x", "c"], ["y"])], [1, 1], {"c": floats(1)}),
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
