"""A VNN-COMP benchmark: a folder with networks, properties and an `instances.csv` that says which belong together."""

import csv
import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.ball import Ball, Eps, Radius, eps_name, radius
from lingraft.data import ImageSet
from lingraft.errors import LingraftError
from lingraft.formats.network_files import network_files
from lingraft.formats.onnx_file import weight_files
from lingraft.formats.vnnlib_write import write_instances, write_vnnlib
from lingraft.progress import progress

#: Where the network of a benchmark that lingraft writes is.
NETWORK = "onnx/network.onnx"


@dataclass(frozen=True)
class Entry:
    """A line of `instances.csv`: network, or list of networks, and property as written, and the seconds allowed."""

    folder: Path
    network: str
    spec: str
    timeout: float

    @property
    def files(self) -> dict[str, Path]:
        """The files of the networks, or their gz versions, by names; that of a single one is ""."""
        return {name: _existing(self.folder / path) for name, path in network_files(self.network).items()}

    @property
    def onnx(self) -> Path:
        """The file of the only network."""
        (path,) = self.files.values()
        return path

    @property
    def networks_from_here(self) -> str:
        """The network or list of networks, with paths from here rather than from the folder."""
        paths = {name: str(self.folder / path) for name, path in network_files(self.network).items()}
        return paths[""] if "" in paths else str(list(paths.items()))

    @property
    def vnnlib(self) -> Path:
        """The file of the property, or its gz version."""
        return _existing(self.folder / self.spec)

    @property
    def name(self) -> str:
        """What the competition calls the instance: network_property, without folders and endings.

        Of several networks these are their names in the property.
        """
        files = network_files(self.network)
        names = [_stem(self.network)] if "" in files else list(files)
        return "_".join([*names, _stem(self.spec)])

    def digest(self) -> str:
        """Of the content of all files, and of those with weights: an answer is used again only for the same ones."""
        networks = [part for path in self.files.values() for part in (path, *_weight_files(path))]
        return "".join(_digest(path) for path in (*networks, self.vnnlib))


def read_instances(folder: str | Path) -> list[Entry]:
    """The instances of a benchmark folder, in order; anything wrong with the list is a LingraftError."""
    folder = Path(folder)
    path = folder / "instances.csv"
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), start=1) if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        what = getattr(error, "strerror", None) or error
        raise LingraftError(
            f"cannot read {path}: {what}. A benchmark needs this file; `lingraft export RUN --vnnlib DIR` writes one."
        ) from error
    entries = [_entry(folder, f"{path}, line {number}", row) for number, row in rows]
    if not entries:
        raise LingraftError(f"{path} lists no instances.")
    return entries


def _entry(folder: Path, where: str, row: list[str]) -> Entry:
    fields = [field.strip() for field in row]
    if len(fields) != 3:
        raise LingraftError(f"{where}: expected network,property,seconds; found {len(fields)} fields.")
    try:
        seconds = float(fields[2])
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise LingraftError(f"{where}: {fields[2]!r} is not a number of seconds above 0.")
    try:
        network_files(fields[0])
    except LingraftError as error:
        raise LingraftError(f"{where}: {error}") from error
    return Entry(folder, fields[0], fields[1], seconds)


@dataclass(frozen=True)
class Properties:
    """What was written of a benchmark: the number of its properties, and of images that have none."""

    folder: Path
    eps: Radius
    properties: int
    misclassified: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "folder": str(self.folder), "eps": eps_name(self.eps)}


def write_properties(
    folder: Path, model: nn.Module, test: ImageSet, images: int | slice, eps: Eps, timeout: float
) -> Properties:
    """Write a property of each of the `images` of `test` that is classified correctly, and the list of them.

    The network itself is expected at `NETWORK`. Files are named by the index of their image.
    """
    chosen, first = test.take(images), 0 if isinstance(images, int) else images.indices(len(test))[0]
    names = []
    ball = Ball.around(radius(eps, alike=True), test.images.shape, test.clip)
    with progress("writing properties", len(chosen)) as advance:
        for offset, label in enumerate(chosen.labels.tolist()):
            image = chosen.pixels(slice(offset, offset + 1))
            with torch.no_grad():
                logits = model(image)[0]
            if int(logits.argmax()) == label:
                name = f"vnnlib/image_{first + offset}.vnnlib"
                lower, upper = ball.bounds(image)
                write_vnnlib(folder / name, lower.numpy(), upper.numpy(), label, len(logits))
                names.append(name)
            advance()
    if not names:
        raise LingraftError("the model classifies none of these images correctly, so there is nothing to verify.")
    write_instances(folder, NETWORK, names, timeout)
    return Properties(folder, ball.eps, len(names), len(chosen) - len(names))


def _existing(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    return packed if not path.exists() and packed.exists() else path


def _stem(written: str) -> str:
    name = Path(written).name.removesuffix(".gz")
    return name.rsplit(".", 1)[0]


def _digest(path: Path) -> str:
    try:
        state = path.stat()
        return _digest_of(path, state.st_mtime_ns, state.st_size)
    except OSError:
        return "missing"


def _weight_files(path: Path) -> list[Path]:
    try:
        state = path.stat()
        return _weight_files_of(path, state.st_mtime_ns, state.st_size)
    except OSError:
        return []


@lru_cache(maxsize=64)
def _weight_files_of(path: Path, changed: int, size: int) -> list[Path]:
    return weight_files(path)


@lru_cache(maxsize=64)
def _digest_of(path: Path, changed: int, size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
