"""CIFAR-10, binary version: the unpacked folder, or the tar.gz read in place (https://www.cs.toronto.edu/~kriz/cifar.html).

A file holds 10,000 records of 3,073 bytes: the label, then 1,024 red, 1,024 green and 1,024 blue pixels in row order.
"""

import gzip
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lingraft.data.images import ImageSet
from lingraft.data.places import damaged, find, missing
from lingraft.data.specs import DataSpec, PublishedFile, Source

FOLDER = "cifar-10-batches-bin"
ARCHIVE = "cifar-10-binary.tar.gz"
_FILES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
_RECORD = 1 + 3 * 32 * 32
_RECORDS = 10_000


def read(part: str, root: Path) -> ImageSet:
    """The `train` or `test` part, uint8 of shape (N, 3, 32, 32)."""
    names = _FILES[part]
    homes = (root, root / "cifar10")
    folders = [*(home / FOLDER for home in homes), *homes]
    if folder := next((folder for folder in folders if all(find([folder / name]) for name in names)), None):
        blobs = {folder / name: _read_file(folder / name) for name in names}
    elif archive := find([home / ARCHIVE for home in homes]):
        blobs = {archive / name: blob for name, blob in _read_archive(archive, names).items()}
    else:
        raise missing("cifar10", f"{ARCHIVE}, or {FOLDER} with {', '.join(names)},", homes)
    parts = [parse(path, blob, _RECORDS) for path, blob in blobs.items()]
    return ImageSet(
        torch.from_numpy(np.concatenate([images for images, _ in parts])),
        torch.from_numpy(np.concatenate([labels for _, labels in parts])),
    )


def parse(path: Path, blob: bytes, records: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3, 32, 32) and labels (N,) of one file's content, which must be exactly `records` records."""
    if len(blob) != records * _RECORD:
        raise damaged("cifar10", path, f"it should hold {records * _RECORD:,} bytes, and holds {_size(blob, records)}")
    table = np.frombuffer(blob, dtype=np.uint8).reshape(records, _RECORD)
    labels = table[:, 0].astype(np.int64)
    if labels.max() >= SPEC.classes:
        raise damaged("cifar10", path, f"label {labels.max()} is not one of the ten classes")
    return table[:, 1:].reshape(records, 3, 32, 32), labels


def _size(blob: bytes, records: int) -> str:
    return f"{len(blob):,}" if len(blob) <= records * _RECORD else "more"


def _read_file(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_RECORDS * _RECORD + 1)
    except OSError as error:
        raise damaged("cifar10", path, f"it cannot be read ({error.strerror or error})") from error


def _read_archive(archive: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The named files of the tar.gz, unpacked in memory only, in the order of `names`."""
    blobs: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                if member.size > 2 * _RECORDS * _RECORD:  # no file of it is that large, and skipping takes time
                    raise ValueError(f"{member.name} has {member.size:,} bytes, more than anything in CIFAR-10")
                name = member.name.rpartition("/")[2]
                if name in names and name not in blobs and (file := tar.extractfile(member)):
                    blobs[name] = file.read(_RECORDS * _RECORD + 1)
                if len(blobs) == len(names):
                    break
    # TypeError: what tarfile makes of a gzip file that ends in its header
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, TypeError) as error:
        raise damaged("cifar10", archive, f"it does not unpack ({error})") from error
    except OSError as error:
        raise damaged("cifar10", archive, f"it cannot be read ({error.strerror or error})") from error
    if absent := [name for name in names if name not in blobs]:
        raise damaged("cifar10", archive, f"{', '.join(absent)} is not in it")
    return {name: blobs[name] for name in names}


SPEC = DataSpec(
    name="cifar10",
    title="CIFAR-10",
    input_shape=(3, 32, 32),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    eps=2 / 255,
    read=read,
    validation_images=5_000,
    train_images=50_000,
    test_images=10_000,
    augment=True,
    source=Source(
        ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        (PublishedFile("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),),
    ),
)
