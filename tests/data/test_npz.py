"""Data of one's own in a file of arrays: what is in it, and what is refused."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from lingraft import LingraftError
from lingraft.data import arrays as arrays_module
from lingraft.data import is_known, load, spec_of
from lingraft.data.arrays import read_arrays

X = np.linspace(0, 1, 20 * 4, dtype=np.float32).reshape(20, 1, 2, 2)
Y = np.arange(20) % 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.npz"


def test_all_in_one(path: Path) -> None:
    np.savez_compressed(path, images=X, labels=Y, something_else=np.array(["a"]))
    assert is_known(str(path))
    train, validation, test = (load(str(path), split) for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (18, 2, 20)
    assert torch.equal(torch.cat([train.images, validation.images]), test.images)
    spec = spec_of(str(path))
    assert (spec.input_shape, spec.classes, spec.eps, spec.divided, spec.title) == (
        (1, 2, 2),
        3,
        None,
        False,
        "mine.npz",
    )
    assert spec.mean == pytest.approx([0.5])


def test_parts(path: Path) -> None:
    some = {"train_images": X[:10], "train_labels": Y[:10], "test_images": X[10:14], "test_labels": Y[10:14]}
    np.savez(path, **some)
    assert [len(load(str(path), split)) for split in ("train", "validation", "test")] == [9, 1, 4]
    assert spec_of(str(path)).divided
    np.savez(path, **some, validation_images=X[14:], validation_labels=Y[14:])  # the same path is read anew
    parts = [load(str(path), split) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [10, 6, 4]
    assert torch.equal(parts[1].images, torch.from_numpy(X[14:]))
    np.savez(path, images=X[:10], labels=Y[:10], test_images=X[10:], test_labels=Y[10:])
    assert [len(load(str(path), split)) for split in ("train", "validation", "test")] == [9, 1, 10]
    np.savez(path, test_images=X, test_labels=Y)
    with pytest.raises(LingraftError, match="Save them in it as train_images"):
        load(str(path), "train")


def test_any_shape_and_range(path: Path) -> None:
    rows = X.reshape(20, 4) * 10 - 5
    np.savez(path, images=rows, labels=Y)
    with pytest.raises(LingraftError, match="--clip none"):
        load(str(path), "test")
    assert load(str(path), "test", clip=None).clip is None
    assert load(str(path), "train", clip="-5,5").clip == (-5, 5)
    np.savez(path, images=rows, labels=Y, lower=rows.min(0), upper=rows.max(0), eps=np.array([0.1, 0.2, 0.3, 0.4]))
    found, spec = load(str(path), "test"), spec_of(str(path))
    assert found.clip is not None
    assert torch.equal(found.clip[0].tensor.float(), torch.from_numpy(rows.min(0)))
    assert spec.eps.tensor.tolist() == [0.1, 0.2, 0.3, 0.4]
    np.savez(path, images=rows, labels=Y, lower=-5, upper=5.0, eps=0.5)
    assert (load(str(path), "test").clip, spec_of(str(path)).eps) == ((-5, 5), 0.5)


def test_bytes_are_pixels(path: Path) -> None:
    np.savez(path, images=(X * 255).astype(np.uint8), labels=Y.astype(np.uint8))
    found = load(str(path), "test")
    assert found.images.dtype == torch.uint8
    assert found.pixels().max() == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"labels": Y}, "has no images. Save both images and labels"),
        ({"images": X}, "has no labels"),
        ({"x": X, "y": Y}, r"has no images. Save them with numpy.savez"),
        ({"images": X, "labels": Y / 2}, "labels must be whole numbers"),
        ({"images": X, "labels": Y[:5]}, r"labels must have the shape \(20,\)"),
        ({"images": X, "labels": Y - 1}, "class indices from 0"),
        ({"images": X.astype(np.int64), "labels": Y}, "must be floats or bytes"),
        ({"images": X * np.nan, "labels": Y}, "NaN"),
        ({"images": X.astype(complex), "labels": Y}, "must be floats or bytes"),
        ({"images": X.astype(object), "labels": Y}, "Python objects"),
        ({"images": X, "labels": Y, "lower": 0.0}, "only one of lower and upper"),
        ({"images": X, "labels": Y, "lower": 1.0, "upper": 0.0}, "lowest value must be below"),
        ({"images": X, "labels": Y, "eps": np.full(3, 0.1), "lower": np.zeros(3), "upper": 1.0}, "one sample has"),
        ({"images": X, "labels": Y, "eps": -0.1}, "eps must be at least 0"),
        ({"images": X, "labels": Y, "train_images": X, "train_labels": Y}, "as well as train_images"),
        ({"images": X, "labels": Y, "test_images": X[:, :, :1], "test_labels": Y}, "different shapes"),
        ({"images": X[:0], "labels": Y[:0]}, "none of them 0"),
        ({"images": X[0, 0, 0, 0], "labels": Y}, "images must have the shape"),
    ],
)
def test_what_is_refused(path: Path, content: dict, message: str) -> None:
    np.savez(path, **content)
    with pytest.raises(LingraftError, match=message) as error:
        load(str(path), "test")
    assert str(path) in str(error.value)


def test_files_that_are_none(path: Path) -> None:
    with pytest.raises(LingraftError, match="there is no file"):
        load(str(path), "test")
    for content in (b"", b"PK\x03\x04", pickle.dumps(X)):
        path.write_bytes(content)
        with pytest.raises(LingraftError, match="cannot be read"):
            load(str(path), "test")


def test_no_more_is_read_than_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header may claim terabytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("images.npy", header.getvalue() + bytes(100))
    with pytest.raises(LingraftError, match="ends before its"):
        read_arrays(path, {"images"})
    monkeypatch.setattr(arrays_module, "LARGEST", 100)
    with pytest.raises(LingraftError, match="more than the 100 that lingraft reads"):
        read_arrays(path, {"images"})
