"""Reading an ONNX file that may be anything: too large, cut short, or not ONNX at all."""

import gzip
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import _get_all_tensors

from lingraft.checker.weight_files import WeightFiles, is_plain_name
from lingraft.errors import LingraftError

#: Above this a file is refused before it is read. The protobuf format itself ends at twice as much.
MAX_BYTES = 1 << 30


def read_model(path: str | Path) -> tuple[Any, bytes]:
    """The checked `onnx.ModelProto` of a file, plain or gz, weights included, and the same as bytes.

    Anything wrong is a LingraftError.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise LingraftError(f"cannot read {path}: {error.strerror}. Check the path of the ONNX file.") from error
    if not path.is_file():
        raise LingraftError(f"{path} is not a file. Give the path of an ONNX file.")
    if size > MAX_BYTES:
        raise LingraftError(f"{path} has {size:,} bytes, more than the {MAX_BYTES:,} that lingraft reads.")
    # What a damaged file makes protobuf and the checker raise is not documented, so everything is caught here.
    try:
        content = _content(path)
        model = onnx.load_model_from_string(content)
        if _add_weights(path, model):
            if model.ByteSize() > MAX_BYTES:
                raise LingraftError(f"{path} holds more than the {MAX_BYTES:,} bytes that lingraft reads.")
            content = model.SerializeToString()
    except LingraftError:
        raise
    except Exception as error:
        raise LingraftError(f"{path} is not a readable ONNX file ({reason(error)}). Export it again.") from error
    try:
        onnx.checker.check_model(content, full_check=True)
    except Exception as error:
        raise LingraftError(f"{path} is not valid ONNX ({reason(error)}). Export it again.") from error
    return model, content


def _add_weights(path: Path, model: Any) -> bool:
    """Give the model the weights that it keeps in files beside its own; whether there are any."""
    files, found = WeightFiles(path.parent, MAX_BYTES), False
    for tensor in _get_all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            found = True
            about = {entry.key: entry.value for entry in tensor.external_data}
            try:
                tensor.raw_data = bytes(files.part(about))
            except LingraftError as error:
                raise LingraftError(f"{path} has {error}.") from error
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    return found


def _content(path: Path) -> bytes:
    """What is in the file itself."""
    return _unpacked(path) if _is_packed(path) else path.read_bytes()


def _is_packed(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _unpacked(path: Path) -> bytes:
    with gzip.open(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise LingraftError(f"{path} holds more than the {MAX_BYTES:,} bytes that lingraft reads.")
    return content


def weight_files(path: Path) -> list[Path]:
    """The files beside an ONNX file in which it keeps weights; none if it is not one that `read_model` reads."""
    if path.stat().st_size > MAX_BYTES:
        return []
    try:
        model = onnx.load_model_from_string(_content(path))
        tensors = [t for t in _get_all_tensors(model) if t.data_location == onnx.TensorProto.EXTERNAL]
    except Exception:  # whatever protobuf raises: reading it for good says so
        return []
    names = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    places = [path.parent / name for name in sorted(names) if is_plain_name(name)]
    return [place for place in places if place.is_file() and place.lstat().st_size <= MAX_BYTES]


def reason(error: Exception) -> str:
    """What an error of another library says, in one line."""
    text = str(error).strip()
    return text.splitlines()[0].strip() if text else type(error).__name__
