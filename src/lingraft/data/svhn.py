"""SVHN, format 2 (32×32 cropped digits): train_32x32.mat and test_32x32.mat (http://ufldl.stanford.edu/housenumbers).

A file holds X, uint8 of shape (32, 32, 3, N), and y, (N, 1), with labels 1 … 10 where 10 is the digit 0.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lingraft.data.images import ImageSet
from lingraft.data.places import damaged, find, missing
from lingraft.data.specs import DATASETS
from lingraft.errors import LingraftError


def read(part: str, root: Path) -> ImageSet:
    """The `train` or `test` part, uint8 of shape (N, 3, 32, 32); N may be less than published."""
    spec = DATASETS["svhn"]
    name = f"{part}_32x32.mat"
    folders = (root / "svhn", root)
    path = find([folder / name for folder in folders])
    if path is None:
        raise missing("svhn", name, folders)
    images, labels = read_mat(path, spec.train_images if part == "train" else spec.test_images)
    return ImageSet(torch.from_numpy(images), torch.from_numpy(labels))


def read_mat(path: Path, most: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3, 32, 32) and labels (N,) with 0 ≤ label ≤ 9, for N from 1 to `most`."""
    from scipy.io import loadmat, whosmat

    try:
        with open(path, "rb") as file:
            if not file.read(128).startswith(b"MATLAB 5.0"):
                raise damaged("svhn", path, "it is not a MATLAB 5.0 file")
            shapes = {name: shape for name, shape, _ in whosmat(file)}
            count = _count(path, shapes, most)  # before loadmat makes room for what the header says
            file.seek(0)
            content: dict[str, Any] = loadmat(file, variable_names=["X", "y"])
    except OSError as error:
        raise damaged("svhn", path, f"it cannot be read ({error.strerror or error})") from error
    except LingraftError:
        raise
    except Exception as error:  # scipy's reader has no error type of its own: a damaged file makes it stumble anyhow
        raise damaged("svhn", path, f"scipy cannot read it ({error or type(error).__name__})") from error
    images, labels = content.get("X"), content.get("y")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape != (32, 32, 3, count):
        raise damaged("svhn", path, "X is not an array of unsigned bytes")
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iuf" or labels.size != count:
        raise damaged("svhn", path, "y is not an array of numbers, one for each image")
    flat = labels.reshape(-1)
    if not np.isin(flat, np.arange(1, 11)).all():
        raise damaged("svhn", path, "y has labels other than 1 … 10")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), flat.astype(np.int64) % 10


def _count(path: Path, shapes: dict[str, tuple[int, ...]], most: int) -> int:
    for name in ("X", "y"):
        if name not in shapes:
            raise damaged("svhn", path, f"it has no variable {name}")
    shape = tuple(shapes["X"])
    if len(shape) != 4 or shape[:3] != (32, 32, 3) or not 1 <= shape[3] <= most:
        raise damaged("svhn", path, f"X has the shape {shape} instead of (32, 32, 3, N) with N from 1 to {most:,}")
    if sorted(shapes["y"]) != [1, shape[3]]:
        raise damaged("svhn", path, f"y has the shape {tuple(shapes['y'])} for {shape[3]:,} images")
    return int(shape[3])
