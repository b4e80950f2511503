"""Reading an ONNX file that may be anything: too large, cut short, or not ONNX at all."""

import gzip
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, load_external_data_for_model

from lingraft.errors import LingraftError

#: Above this a file is refused before it is read. The protobuf format itself ends at twice as much.
MAX_BYTES = 1 << 30


def read_model(path: str | Path) -> Any:
    """The checked `onnx.ModelProto` of a file, plain or gz, weights included; anything wrong is a LingraftError."""
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
        model = _unpacked(path) if _is_packed(path) else _plain(path)
    except LingraftError:
        raise
    except Exception as error:
        raise LingraftError(f"{path} is not a readable ONNX file ({reason(error)}). Export it again.") from error
    if model.ByteSize() > MAX_BYTES:
        raise LingraftError(f"{path} holds more than the {MAX_BYTES:,} bytes that lingraft reads.")
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise LingraftError(f"{path} is not valid ONNX ({reason(error)}). Export it again.") from error
    return model


def _plain(path: Path) -> Any:
    """A model whose weights are in the file, or in others beside it that are not too large."""
    model = onnx.load(str(path), load_external_data=False)
    folder, size = path.parent.resolve(), 0
    for tensor in _get_all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            about = ExternalDataInfo(tensor)
            place = (folder / about.location).resolve()
            if not place.is_relative_to(folder):
                raise LingraftError(f"{path} takes weights from {place}, which is not beside it. Put them there.")
            size += about.length or place.stat().st_size - (about.offset or 0)
            if size > MAX_BYTES:
                raise LingraftError(f"{path} has more than the {MAX_BYTES:,} bytes of weights that lingraft reads.")
    load_external_data_for_model(model, str(folder))
    return model


def _is_packed(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _unpacked(path: Path) -> Any:
    with gzip.open(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise LingraftError(f"{path} holds more than the {MAX_BYTES:,} bytes that lingraft reads.")
    return onnx.load_model_from_string(content)


def reason(error: Exception) -> str:
    """What an error of another library says, in one line."""
    text = str(error).strip()
    return text.splitlines()[0].strip() if text else type(error).__name__
