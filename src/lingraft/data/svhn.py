"""SVHN, format 2 (32×32 cropped digits): train_32x32.mat and test_32x32.mat (http://ufldl.stanford.edu/housenumbers).

A file holds X, uint8 of shape (32, 32, 3, N), and y, (N, 1), with labels 1 … 10 where 10 is the digit 0.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lingraft.data.images import ImageSet
from lingraft.data.matlab import arrays
from lingraft.data.places import damaged, find, missing
from lingraft.data.specs import DATASETS, DataSpec, PublishedFile, Source

_IMAGE = 32 * 32 * 3


def read(part: str, root: Path) -> ImageSet:
    """The `train` or `test` part, uint8 of shape (N, 3, 32, 32); N may be less than published."""
    name = f"{part}_32x32.mat"
    folders = (root / "svhn", root)
    path = find([folder / name for folder in folders])
    if path is None:
        raise missing("svhn", name, folders)
    most = DATASETS["svhn"].published(part)
    assert most is not None
    images, labels = read_mat(path, most)
    return ImageSet(torch.from_numpy(images), torch.from_numpy(labels))


def read_mat(path: Path, most: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3, 32, 32) and labels (N,) with 0 ≤ label ≤ 9, for N from 1 to `most`."""
    limit = most * _IMAGE + 1_000_000  # labels and headers are much less than the last term
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise ValueError(f"it is larger than {limit:,} bytes")
        variables = arrays(content, limit)
    except OSError as error:
        raise damaged("svhn", path, f"it cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise damaged("svhn", path, str(error)) from error
    for name in ("X", "y"):
        if name not in variables:
            raise damaged("svhn", path, f"it has no variable {name}")
    images, labels = variables["X"], variables["y"]
    if images.dtype != np.uint8 or images.shape[:-1] != (32, 32, 3) or not 1 <= images.shape[-1] <= most:
        wanted = f"uint8 of shape (32, 32, 3, N) with N from 1 to {most:,}"
        raise damaged("svhn", path, f"X is {images.dtype} of shape {images.shape} instead of {wanted}")
    if sorted(labels.shape) != [1, images.shape[-1]]:
        raise damaged("svhn", path, f"y has the shape {labels.shape} for {images.shape[-1]:,} images")
    if not np.isin(labels, np.arange(1, 11)).all():
        raise damaged("svhn", path, "y has labels other than 1 … 10")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.reshape(-1).astype(np.int64) % 10


SPEC = DataSpec(
    name="svhn",
    title="SVHN, 32×32 cropped digits",
    input_shape=(3, 32, 32),
    class_names=tuple("0123456789"),
    mean=(0.4377, 0.4438, 0.4728),
    std=(0.1201, 0.1231, 0.1052),
    eps=2 / 255,
    read=read,
    validation_images=5_000,
    train_images=73_257,
    test_images=26_032,
    source=Source(
        ("http://ufldl.stanford.edu/housenumbers/", "https://ufldl.stanford.edu/housenumbers/"),
        (
            PublishedFile("svhn/train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
            PublishedFile("svhn/test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
        ),
    ),
)
