"""MNIST in the idx format, packed with gzip or not (http://yann.lecun.com/exdb/mnist, closed)."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lingraft.data.images import ImageSet
from lingraft.data.places import damaged, find, missing
from lingraft.data.specs import DATASETS, DataSpec, PublishedFile, Source

_UNSIGNED_BYTE = 0x08
_PREFIX = {"train": "train", "test": "t10k"}


def read(part: str, root: Path) -> ImageSet:
    """The `train` or `test` part, uint8 of shape (N, 1, 28, 28)."""
    spec = DATASETS["mnist"]
    count = spec.published(part)
    assert count is not None
    prefix = _PREFIX[part]
    image_path = locate(root, f"{prefix}-images-idx3-ubyte")
    label_path = locate(root, f"{prefix}-labels-idx1-ubyte")
    images = read_idx(image_path, (count, 28, 28))
    labels = read_idx(label_path, (count,))
    if labels.max() >= spec.classes:
        raise damaged("mnist", label_path, f"label {labels.max()} is not a digit")
    return ImageSet(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)))


def locate(root: Path, name: str) -> Path:
    """The file `name` or `name`.gz in `root`/mnist, `root`, or where torchvision puts it (`root`/MNIST/raw)."""
    folders = (root / "mnist", root, root / "MNIST" / "raw")
    path = find([folder / file for folder in folders for file in (f"{name}.gz", name)])
    if path is None:
        raise missing("mnist", f"{name}.gz, packed or not,", folders)
    return path


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes that must have this shape.

    The header is compared with `shape` before anything of that size is read, and no more than that is ever
    unpacked, so a damaged or hostile file cannot fill the memory. Packed or not is told by the content, since some
    browsers unpack a download and keep its name.
    """
    header = bytes((0, 0, _UNSIGNED_BYTE, len(shape))) + np.array(shape, dtype=">u4").tobytes()
    size = math.prod(shape)
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as file:
                start = file.read(len(header))
                if start != header:
                    raise damaged("mnist", path, _wrong_header(start, shape))
                data = file.read(size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged("mnist", path, f"it does not unpack ({error})") from error
    except OSError as error:
        raise damaged("mnist", path, f"it cannot be read ({error.strerror or error})") from error
    if len(data) != size:
        surplus = "more" if len(data) > size else f"{len(data):,}"
        raise damaged("mnist", path, f"it should hold {size:,} bytes of data and holds {surplus}")
    return np.frombuffer(bytearray(data), dtype=np.uint8).reshape(shape)


def _wrong_header(start: bytes, shape: tuple[int, ...]) -> str:
    if start[:4] != bytes((0, 0, _UNSIGNED_BYTE, len(shape))):
        return f"it does not start like an idx file of unsigned bytes with {len(shape)} dimensions"
    sizes = "×".join(str(int.from_bytes(start[at : at + 4], "big")) for at in range(4, len(start), 4))
    return f"it says it holds {sizes} values instead of {'×'.join(map(str, shape))}"


SPEC = DataSpec(
    name="mnist",
    title="MNIST",
    input_shape=(1, 28, 28),
    class_names=tuple("0123456789"),
    mean=(0.0,),
    std=(1.0,),
    eps=0.1,
    read=read,
    validation_images=6_000,
    train_images=60_000,
    test_images=10_000,
    source=Source(
        # yann.lecun.com, the first home of MNIST, no longer gives out the files; these two hold them unchanged
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            PublishedFile("mnist/train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            PublishedFile("mnist/train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            PublishedFile("mnist/t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            PublishedFile("mnist/t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    ),
)
