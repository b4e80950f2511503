"""Weights in files beside an ONNX file: read, hashed, and refused where they are anything else."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from handmade_onnx import floats, onnx_bytes
from onnx import TensorProto, helper

from lingraft.checker.evaluation import outputs
from lingraft.checker.onnx_reader import load_network, network_of, read_network, weights_beside
from lingraft.checker.runtime import Runtime
from lingraft.errors import LingraftError
from lingraft.formats.onnx_file import weight_files
from lingraft.formats.onnx_import import load_onnx

READERS: dict[str, Callable[[Path], object]] = {"importer": load_onnx, "checker": load_network}
WEIGHT = floats(3, 4)


def write(path: Path, location: str = "net.onnx.data", content: bytes | None = WEIGHT.tobytes(), **more: str) -> Path:
    """A network of one layer, whose weights are elsewhere; `more` are entries that say where."""
    model = onnx.load_model_from_string(
        onnx_bytes([helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], [1, 4], {"w": WEIGHT})
    )
    for size in (1, 3):
        model.graph.output[0].type.tensor_type.shape.dim.add(dim_value=size)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    if content is not None:
        (path.parent / location).write_bytes(content)
    return path


@pytest.mark.parametrize("place", [{}, {"offset": "64", "length": "48"}, {"offset": "64"}])
def test_read_by_everyone(tmp_path: Path, place: dict[str, str]) -> None:
    content = bytes(64 if place else 0) + WEIGHT.tobytes()
    path = write(tmp_path / "net.onnx", content=content, **place)
    x = floats(4)
    expected = WEIGHT @ x
    np.testing.assert_allclose(load_onnx(path).linear1.weight.detach().numpy(), WEIGHT)  # type: ignore[union-attr]
    data, beside = read_network(path), weights_beside(path)
    np.testing.assert_allclose(outputs(network_of(data, "net", beside), x.astype(np.float64)), expected, rtol=1e-6)
    assert beside.contents == {"net.onnx.data": content}
    np.testing.assert_allclose(Runtime(data, beside.contents).outputs(x), expected, rtol=1e-5)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x[None]})[0][0], expected, rtol=1e-5)


def test_the_hash_is_that_of_all_files(tmp_path: Path) -> None:
    """As docs/certificates.md says it, and another one for other weights, or for another ONNX file."""
    path = write(tmp_path / "net.onnx")
    first = load_network(path).sha256
    own, others = (hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("net.onnx", "net.onnx.data"))
    text = f"lingraft: an ONNX file and its weights\n{own}\n{others}  net.onnx.data\n"
    assert first == hashlib.sha256(text.encode()).hexdigest()
    changed = bytearray(WEIGHT.tobytes())
    changed[0] ^= 1
    (tmp_path / "net.onnx.data").write_bytes(bytes(changed))
    assert load_network(path).sha256 != first
    (tmp_path / "net.onnx.data").write_bytes(WEIGHT.tobytes())
    assert load_network(path).sha256 == first
    assert load_network(write(path, offset="0")).sha256 != first


PLACES: dict[str, dict[str, str]] = {
    "behind the end": {"offset": "1000"},
    "over the end": {"offset": "40", "length": "48"},
    "too long": {"length": "999999999999"},
    "too short": {"length": "44"},
    "no number": {"offset": "-4"},
    "many digits": {"offset": "0" * 5000},
    "another entry": {"basepath": "/etc"},
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", PLACES)
def test_places_that_are_none(tmp_path: Path, reader: str, case: str) -> None:
    with pytest.raises(LingraftError):
        READERS[reader](write(tmp_path / "net.onnx", **PLACES[case]))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "", ".", "..", "a/b", "c:\\b", "missing", "net\n", "x" * 300]
)
def test_other_files_are_not_read(tmp_path: Path, reader: str, location: str) -> None:
    (tmp_path / "net" / "a").mkdir(parents=True)
    for secret in (tmp_path / "secret", tmp_path / "net" / "a" / "b"):
        secret.write_bytes(WEIGHT.tobytes())
    with pytest.raises(LingraftError, match="weights"):
        READERS[reader](write(tmp_path / "net" / "net.onnx", location, None))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "huge"])
def test_only_ordinary_files_are_read(tmp_path: Path, reader: str, kind: str) -> None:
    path, place = write(tmp_path / "net.onnx", content=None), tmp_path / "net.onnx.data"
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(WEIGHT.tobytes())
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        with open(place, "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(LingraftError, match="cannot be read"):
        READERS[reader](path)
    assert weight_files(path) == ([place] if kind == "link" else [])


@pytest.mark.parametrize("reader", READERS)
def test_the_same_bytes_again_and_again(tmp_path: Path, reader: str) -> None:
    model = onnx.load_model_from_string(write(tmp_path / "net.onnx").read_bytes())
    for i in range(3):
        model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
        model.graph.initializer[-1].name = f"w{i}"
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(LingraftError, match="again and again"):
        READERS[reader](tmp_path / "net.onnx")
