"""The SVHN reader and the MATLAB files below it; scipy makes the files and says what is in them."""

import io
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.data import svhn

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (32, 32, 3, 7), dtype=np.uint8)
LABELS = np.array([[1], [10], [3], [9], [10], [2], [5]], dtype=np.uint8)


def mat(compress: bool = True, **variables: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, variables, do_compression=compress)
    return buffer.getvalue()


def write(folder: Path, content: bytes) -> Path:
    path = folder / "train_32x32.mat"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(float), LABELS.astype(np.int32), LABELS.T])
def test_reads(tmp_path: Path, compress: bool, labels: np.ndarray):
    images, digits = svhn.read_mat(write(tmp_path, mat(compress, X=IMAGES, y=labels)), 100)
    assert images.shape == (7, 3, 32, 32)
    for i in range(7):
        for channel in range(3):
            np.testing.assert_array_equal(images[i, channel], IMAGES[:, :, channel, i])
    assert digits.tolist() == [1, 0, 3, 9, 0, 2, 5]
    assert digits.dtype == np.int64


@pytest.mark.parametrize("place", ["svhn", "."])
def test_finds_the_file_and_takes_any_number_of_images(tmp_path: Path, place: str):
    (tmp_path / place).mkdir(exist_ok=True)
    for part in ("train", "test"):
        (tmp_path / place / f"{part}_32x32.mat").write_bytes(mat(X=IMAGES, y=LABELS))
        assert len(svhn.read(part, tmp_path)) == 7


def test_missing_names_file_folders_and_command(tmp_path: Path):
    with pytest.raises(LingraftError) as caught:
        svhn.read("test", tmp_path)
    for text in ("test_32x32.mat", str(tmp_path / "svhn"), "lingraft data fetch svhn"):
        assert text in str(caught.value)


def changed(values: np.ndarray, value: float) -> np.ndarray:
    result = values.astype(float)
    result[2] = value
    return result


DAMAGE = {
    "empty": (b"", "does not start like"),
    "header only": (mat(X=IMAGES, y=LABELS)[:128], "no variable X"),
    "no images": (mat(y=LABELS), "no variable X"),
    "no labels": (mat(X=IMAGES), "no variable y"),
    "float images": (mat(X=IMAGES / 255, y=LABELS), "X is float64"),
    "channels first": (mat(X=IMAGES.transpose(3, 2, 0, 1), y=LABELS), r"of shape \(7, 3, 32, 32\)"),
    "one image without its axis": (mat(X=IMAGES[..., 0], y=LABELS[:1]), "of shape"),
    "a label more": (mat(X=IMAGES[..., :6], y=LABELS), "y has the shape"),
    "two columns of labels": (mat(X=IMAGES, y=np.hstack([LABELS, LABELS])), "y has the shape"),
    "label 0": (mat(X=IMAGES, y=changed(LABELS, 0)), "other than 1 … 10"),
    "label 11": (mat(X=IMAGES, y=changed(LABELS, 11)), "other than 1 … 10"),
    "label 2.5": (mat(X=IMAGES, y=changed(LABELS, 2.5)), "other than 1 … 10"),
    "label NaN": (mat(X=IMAGES, y=changed(LABELS, np.nan)), "other than 1 … 10"),
    "complex labels": (mat(X=IMAGES, y=LABELS + 1j), "elements instead of 4"),
    "text for labels": (mat(X=IMAGES, y=np.array(["one"])), "not an array of real numbers"),
    "too many images": (mat(X=np.repeat(IMAGES, 20, 3), y=np.repeat(LABELS, 20, 0)), "N from 1 to 100"),
    "trailing bytes": (mat(X=IMAGES, y=LABELS) + b"\x00" * 3, "something follows its end"),
    "other format": (b"\x89HDF\r\n\x1a\n" + bytes(500), "does not start like a MATLAB 5 file"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage(tmp_path: Path, kind: str):
    content, why = DAMAGE[kind]
    path = write(tmp_path, content)
    with pytest.raises(LingraftError, match=why) as caught:
        svhn.read_mat(path, 100)
    assert str(path) in str(caught.value)
    assert "lingraft data fetch svhn" in str(caught.value)


@pytest.mark.parametrize("compress", [True, False])
def test_cut_short_anywhere(tmp_path: Path, compress: bool):
    content = mat(compress, X=IMAGES, y=LABELS)
    for cut in {*range(0, 300, 7), *range(len(content) - 100, len(content)), *range(300, len(content), 997)}:
        with pytest.raises(LingraftError):
            svhn.read_mat(write(tmp_path, content[:cut]), 100)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path):
    path = tmp_path / "train_32x32.mat"
    with open(path, "wb") as file:
        file.truncate(10**12)  # a hole of a terabyte: reading it would end badly
    with pytest.raises(LingraftError, match="larger than"):
        svhn.read_mat(path, 100)


SMALL = {compress: mat(compress, X=IMAGES[..., :2], y=LABELS[:2]) for compress in (True, False)}


@settings(max_examples=500, deadline=None)
@given(
    compress=st.booleans(),
    changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=5),
    near=st.sampled_from(["start", "end", "anywhere"]),
)
@example(compress=False, changes=[(128 + 9, 1)], near="anywhere")
def test_changed_bytes_give_images_or_a_lingraft_error(tmp_path_factory, compress: bool, changes, near: str):
    content = bytearray(SMALL[compress])
    for at, value in changes:
        spans = {"start": (120, 80), "end": (len(content) - 90, 90), "anywhere": (0, len(content))}
        first, length = spans[near]
        content[first + at % length] = value
    path = write(tmp_path_factory.getbasetemp(), bytes(content))
    try:
        images, labels = svhn.read_mat(path, 100)
    except LingraftError:
        return
    assert images.shape == (2, 3, 32, 32)
    assert labels.shape == (2,)
    assert labels.min() >= 0
    assert labels.max() <= 9
