"""Where the network of a run comes from, if it is none of the zoo: code of the user's own, or an ONNX file."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from torch import nn

from lingraft.errors import LingraftError
from lingraft.files import digest_file
from lingraft.model.code import file_of, from_code, is_code, place_of

#: How the name of an ONNX file ends.
ONNX = (".onnx", ".onnx.gz")


class Origin(BaseModel):
    """What made a network: `net.py:make_net`, `package.module:Net` or `net.onnx`, and the digest of that file."""

    model_config = ConfigDict(extra="forbid")

    place: str
    sha256: str | None = None

    @property
    def is_onnx(self) -> bool:
        """Whether it is an ONNX file, of which the run has a copy, rather than code."""
        return self.place.endswith(ONNX)


def is_network(given: Any) -> bool:
    """Whether a text or path names a network, an ONNX file or code, rather than a run folder."""
    return isinstance(given, str | Path) and (str(given).endswith(ONNX) or is_code(str(given)))


def network_from(place: str | Path) -> Any:
    """The network of an ONNX file or of code that the user names; only that code is ever run."""
    if is_code(str(place)):
        return from_code(str(place))
    if not is_network(place):
        raise LingraftError(f"{place} names no network. Write net.onnx, or code that makes one: net.py:make_net.")
    from lingraft.formats.onnx_import import load_onnx  # onnxruntime is slow to import, and few runs need it

    return load_onnx(place)


def origin_of(given: nn.Module | str | Path) -> Origin | None:
    """Where a network comes from that was made by its name, or as far as its class says; None if nothing says it."""
    place = place_of(given) if isinstance(given, nn.Module) else str(given)
    if place is None:
        return None
    file = Path(place) if place.endswith(ONNX) else file_of(place)
    return Origin(place=place, sha256=None if file is None else digest_file(file))
