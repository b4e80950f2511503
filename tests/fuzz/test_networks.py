"""Networks in ONNX, for the importer and for the checker's own reader; certificates about them."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from lingraft.checker.check import check_file
from lingraft.checker.onnx_reader import load_network
from lingraft.errors import LingraftError
from lingraft.formats.certificate_writer import claim_of_image
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_import import load_onnx
from lingraft.pool.images import verify_each
from lingraft.pool.place import HERE
from lingraft.solver.request import Limits, Request
from lingraft.work.certify import Certifier

FUZZ = settings.get_profile("fuzz")
READERS = {"importer": load_onnx, "checker": load_network}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("networks") / "good.onnx"
    export_onnx(network(), path, input_shape=(1, 4, 4))
    return path


@pytest.mark.parametrize("reader", READERS)
@FUZZ
@given(data=st.data())
def test_damaged(fuzzed: Any, place: Path, good: Path, reader: str, data: st.DataObject) -> None:
    path = place / "x.onnx"
    path.write_bytes(fuzzed.bytes(data, good.read_bytes()))
    fuzzed.survive(lambda: READERS[reader](path))


NUMBERS = st.sampled_from([-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 1000, 2**16, 2**31 - 1, 2**31, 2**62, 2**63 - 1])


def change_numbers(data: st.DataObject, model: Any) -> None:
    """Other numbers in attributes, shapes and integer constants, other connections, other operations."""
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        kind = data.draw(st.sampled_from(["attribute", "shape", "weights", "operation", "connection"]))
        node = data.draw(st.sampled_from(list(model.graph.node)))
        if kind == "attribute" and node.attribute:
            attribute = data.draw(st.sampled_from(list(node.attribute)))
            if attribute.ints:
                attribute.ints[data.draw(st.integers(0, len(attribute.ints) - 1))] = data.draw(NUMBERS)
            else:
                attribute.i = data.draw(NUMBERS)
        elif kind == "shape":
            value = data.draw(st.sampled_from([*model.graph.input, *model.graph.output]))
            dims = value.type.tensor_type.shape.dim
            if dims:
                data.draw(st.sampled_from(list(dims))).dim_value = data.draw(NUMBERS)
        elif kind == "weights":
            tensor = data.draw(st.sampled_from(list(model.graph.initializer)))
            if data.draw(st.booleans()) and tensor.dims:
                tensor.dims[data.draw(st.integers(0, len(tensor.dims) - 1))] = data.draw(NUMBERS)
            else:
                shape = data.draw(st.lists(st.integers(0, 3), max_size=4))
                tensor.CopyFrom(numpy_helper.from_array(np.ones(shape, np.float32), tensor.name))
        elif kind == "operation":
            known = [
                "Conv",
                "Gemm",
                "MatMul",
                "Relu",
                "MaxPool",
                "AveragePool",
                "Reshape",
                "Transpose",
                "Add",
                "Pad",
                "Expand",
                "ConvTranspose",
                "Split",
                "ReduceMean",
                "ReduceSum",
                "Resize",
                "Tile",
                "Softmax",
                "Cast",
            ]
            node.op_type = data.draw(
                st.sampled_from([*known, "ConstantOfShape", "Loop", "Concat", "Slice", "Gather", "Sigmoid"])
            )
        elif kind == "connection" and node.input:
            names = [
                *(n.output[0] for n in model.graph.node),
                *(t.name for t in model.graph.initializer),
                "",
                "nowhere",
            ]
            node.input[data.draw(st.integers(0, len(node.input) - 1))] = data.draw(st.sampled_from(names))


@pytest.mark.parametrize("reader", READERS)
@FUZZ
@given(data=st.data())
def test_other_numbers(fuzzed: Any, place: Path, good: Path, reader: str, data: st.DataObject) -> None:
    model = onnx.load(str(good))
    change_numbers(data, model)
    path = place / "x.onnx"
    path.write_bytes(model.SerializeToString())
    fuzzed.survive(lambda: READERS[reader](path))


def made(nodes: list[Any], shape: tuple[int, ...], weights: dict[str, np.ndarray] | None = None) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op, i.split(), [o], **attributes) for op, i, o, attributes in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model.graph.output[0].type.tensor_type.shape.dim.extend([])
    return model.SerializeToString()


ONE = {"w": np.ones((1, 1, 1, 1), np.float32)}
HUGE = {
    "padding": lambda: made([("Conv", "x w", "y", {"pads": [2**20] * 4})], (1, 1, 2, 2), ONE),
    "pads": lambda: made(
        [("Pad", "x p", "y", {})], (1, 1, 2, 2), {"p": np.array([0, 0, 2**24, 2**24] * 2, np.int64)}
    ),
    "input": lambda: made([("Relu", "x", "y", {})], (1, 2**20, 2**20)),
    "constant": lambda: made(
        [("ConstantOfShape", "s", "c", {}), ("Add", "x c", "y", {})], (1, 2), {"s": np.array([2**20, 2**14], np.int64)}
    ),
    "broadcast": lambda: made(
        [("Add", "a b", "c", {}), ("Add", "x c", "y", {})],
        (1, 2),
        {"a": np.ones((2**17, 1), np.float32), "b": np.ones((1, 2**17), np.float32)},
    ),
    "outer": lambda: made([("Add", "x b", "y", {})], (1, 1, 2**17), {"b": np.ones((1, 2**17, 1), np.float32)}),
    "doubling": lambda: made(
        [("Concat", f"{'x' if not i else f'v{i - 1}'} " * 2, "y" if i == 39 else f"v{i}", {"axis": 1}) for i in range(40)],
        (1, 2),
    ),
    "resizing": lambda: made(
        [("Resize", "x r s", "y", {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})],
        (1, 1, 8, 8), {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2**10, 2**10], np.float32)},
    ),
    "repeated": lambda: made([("Tile", "x s", "y", {})], (1, 2), {"s": np.array([1, 2**26], np.int64)}),
    "expanded": lambda: made([("Expand", "x s", "y", {})], (1, 1), {"s": np.array([2**13, 2**14], np.int64)}),
    "gathered": lambda: made(
        [("ConstantOfShape", "s", "c", {"value": helper.make_tensor("v", TensorProto.INT64, [1], [0])}), ("Gather", "x c", "y", {"axis": 1})],
        (1, 64), {"s": np.array([2**22], np.int64)},
    ),
    "spread": lambda: made(
        [("ConvTranspose", "x w", "y", {"strides": [2**13, 2**13]})], (1, 1, 4, 4), ONE
    ),
    "range": lambda: made(
        [("Range", "a b c", "r", {}), ("Add", "x r", "y", {})],
        (1, 1), {"a": np.float32(0), "b": np.float32(1e12), "c": np.float32(1)},
    ),
    "pooling": lambda: made(
        [("AveragePool", "x", "y", {"kernel_shape": [2**15, 2**15], "pads": [2**15 - 1] * 4})], (1, 1, 1, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", HUGE)
def test_small_files_of_huge_networks(
    fuzzed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, kind: str
) -> None:
    monkeypatch.setattr("lingraft.checker.network.MAX_ALL_VALUES", 1 << 20)  # what is allowed takes a while
    path = tmp_path / "x.onnx"
    path.write_bytes(HUGE[kind]())
    with pytest.raises(LingraftError):
        fuzzed.survive(lambda: READERS[reader](path)) or _refused()


def _refused() -> None:
    raise LingraftError("refused")


def deep(content: bytes, levels: int) -> bytes:
    """A graph in a graph in a graph: attribute `g` (6) of a node (1) of a graph."""
    for _ in range(levels):
        for field in (6, 5, 1):
            content = bytes([field << 3 | 2]) + _varint(len(content)) + content
    return b"\x3a" + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = []
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


@pytest.mark.parametrize("reader", READERS)
def test_nested_graphs_and_packed_gigabytes(fuzzed: Any, tmp_path: Path, reader: str) -> None:
    path = tmp_path / "x.onnx"
    for content in (deep(b"", 10_000), gzip.compress(bytes(1 << 24)) * 256, b"", b"\x3a" + b"\xff" * 9):
        path.write_bytes(content)
        with pytest.raises(LingraftError):
            fuzzed.survive(lambda: READERS[reader](path)) or _refused()


@pytest.mark.parametrize("reader", READERS)
def test_a_negative_batch(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(made([("Relu", "x", "y", {})], (-1, 2)))
    with pytest.raises(LingraftError):
        READERS[reader](path)


@pytest.fixture(scope="module")
def outside(good: Path) -> Path:
    """The good network with its weights in a file beside it."""
    path = good.parent / "outside.onnx"
    onnx.save_model(
        onnx.load(str(good)), str(path), save_as_external_data=True, location="outside.onnx.data", size_threshold=0
    )
    assert all(reader(path) is not None for reader in READERS.values())
    return path


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("which", ["network", "weights", "entries"])
@FUZZ
@given(data=st.data())
def test_damaged_weights_in_other_files(
    fuzzed: Any, place: Path, outside: Path, reader: str, which: str, data: st.DataObject
) -> None:
    network, content = outside.read_bytes(), outside.with_name("outside.onnx.data").read_bytes()
    if which == "network":
        network = fuzzed.bytes(data, network)
    elif which == "weights":
        content = fuzzed.bytes(data, content)
    else:
        model = onnx.load_model_from_string(network)
        for _ in range(data.draw(st.integers(1, 3))):
            tensor = data.draw(st.sampled_from([t for t in model.graph.initializer if t.external_data]))
            entry = data.draw(st.sampled_from(list(tensor.external_data)))
            odd = st.one_of(
                st.text(max_size=5), NUMBERS.map(str), st.sampled_from(["../x", "/dev/zero", ".", "x.onnx"])
            )
            if data.draw(st.booleans()):
                entry.value = data.draw(odd)
            else:
                entry.key = data.draw(st.sampled_from(["location", "offset", "length", "checksum", "else"]))
        network = model.SerializeToString()
    (place / "x.onnx").write_bytes(network)
    (place / "outside.onnx.data").write_bytes(content)
    fuzzed.survive(lambda: READERS[reader](place / "x.onnx"))


@pytest.fixture(scope="module")
def proven(good: Path) -> Path:
    """A certificate about the good network."""
    model = load_onnx(good)
    with torch.no_grad():
        image = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        label = model(image).argmax(1)
    request = Request(model, image, label, eps=0.02)
    ((_, result),) = verify_each(request, Limits(20.0, prove=True), HERE)
    assert result.verdict == "verified"
    certifier = Certifier(good, good.parent, True)
    certifier.add("image", claim_of_image(request, 0, {}), result, request.network)
    assert certifier.tally.checked == 1
    return good.parent / "image.cert"


@FUZZ
@given(data=st.data())
def test_damaged_certificates(fuzzed: Any, place: Path, good: Path, proven: Path, data: st.DataObject) -> None:
    path = place / "x.cert"
    path.write_bytes(fuzzed.bytes(data, proven.read_bytes()))
    fuzzed.survive(lambda: check_file(path, load_network(good)))


@FUZZ
@given(data=st.data())
def test_other_headers_of_certificates(fuzzed: Any, place: Path, good: Path, proven: Path, data: st.DataObject) -> None:
    import json

    first, length, rest = proven.read_bytes().split(b"\n", 2)
    header = fuzzed.json(data, json.loads(rest[: int(length)]))
    text = json.dumps(header).encode()
    path = place / "x.cert"
    path.write_bytes(b"%s\n%d\n%s%s" % (first, len(text), text, rest[int(length) :]))
    report: Callable[[], Any] = lambda: check_file(path, load_network(good))  # noqa: E731
    fuzzed.survive(report)
