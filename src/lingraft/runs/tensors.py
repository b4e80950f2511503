"""Tensors in files that are never unpickled, with a checksum, and into models."""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lingraft.errors import LingraftError
from lingraft.files import replacing

#: Name of the checksum in the metadata of a safetensors file; files from elsewhere have none.
_CHECKSUM = "crc32"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None) -> None:
    """Write tensors and JSON metadata to a safetensors file, atomically and with a checksum of them all."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    texts = {key: json.dumps(value) for key, value in (metadata or {}).items()}
    with replacing(path) as part:
        # not `save_file`: it makes files that only their owner can read, and its I/O errors are not OSErrors
        part.write_bytes(save(plain, metadata={**texts, _CHECKSUM: _checksum(plain, texts)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a safetensors file; a missing or damaged one is a LingraftError that names it."""
    try:
        with safe_open(path, framework="pt") as file:
            texts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        told = texts.pop(_CHECKSUM, None)
        if told is not None and told != _checksum(tensors, texts):
            raise ValueError("its checksum is wrong")
        return tensors, {key: json.loads(value) for key, value in texts.items()}
    except FileNotFoundError as error:
        raise LingraftError(f"{path} is missing. Is {path.parent} a run folder made by `lingraft train`?") from error
    except (SafetensorError, OSError, ValueError, RecursionError, MemoryError) as error:
        raise LingraftError(f"{path} is damaged ({error}). Restore it or make the run again.") from error


def _checksum(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """Changes with every bit of the tensors on the CPU, their names, types and shapes, and the texts."""
    value = zlib.crc32(json.dumps(sorted(texts.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        value = zlib.crc32(repr((name, tensor.dtype, tuple(tensor.shape))).encode(), value)
        value = zlib.crc32(tensor.view(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Put `tensors` into `model`, or say which ones do not fit and that they came from `source`."""
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        what = " ".join(str(error).split())
        raise LingraftError(f"the weights of {source} do not fit the model ({what}). Is it the right model?") from error
    _reject_non_finite(tensors, source)


def _reject_non_finite(tensors: Mapping[str, Tensor], source: Path) -> None:
    broken: Sequence[str] = [n for n, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
    if broken:
        raise LingraftError(f"{source} has NaN or infinite weights in {', '.join(broken)}. Train the model again.")
