"""The idx reader: hand-made files, packed and not, and every kind of damage."""

import contextlib
import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.data import DATASETS, mnist

SHAPE = (3, 4, 5)
VALUES = np.arange(60, dtype=np.uint8).reshape(SHAPE)


def idx(values: np.ndarray, magic: int | None = None, shape: tuple[int, ...] | None = None) -> bytes:
    shape = shape or values.shape
    magic = 0x0800 + len(shape) if magic is None else magic
    return struct.pack(f">{1 + len(shape)}I", magic, *shape) + values.tobytes()


def write(folder: Path, content: bytes, name: str = "images") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_reads_raw_and_packed(tmp_path: Path, pack):
    values = mnist.read_idx(write(tmp_path, pack(idx(VALUES))), SHAPE)
    np.testing.assert_array_equal(values, VALUES)
    values[0, 0, 0] = 7  # a tensor made of it must be writable


def test_packed_is_told_by_content_not_by_name(tmp_path: Path):
    path = write(tmp_path, idx(VALUES), "images.gz")
    np.testing.assert_array_equal(mnist.read_idx(path, SHAPE), VALUES)


DAMAGE = {
    "empty": (b"", "does not start like an idx file"),
    "half a magic number": (b"\x00\x00", "does not start like an idx file"),
    "wrong magic": (idx(VALUES, magic=0x0801), "does not start like an idx file"),
    "another type": (idx(VALUES, magic=0x0D03), "does not start like an idx file"),
    "header cut short": (idx(VALUES)[:10], "says it holds"),
    "other size": (idx(VALUES, shape=(3, 5, 4)), "3×5×4 values instead of 3×4×5"),
    "huge size": (idx(VALUES, shape=(2**32 - 1,) * 3), "4294967295×4294967295×4294967295 values"),
    "cut short": (idx(VALUES)[:-1], "holds 59"),
    "no data": (idx(VALUES)[:16], "holds 0"),
    "trailing byte": (idx(VALUES) + b"\x00", "holds more"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_damage(tmp_path: Path, kind: str, pack):
    content, why = DAMAGE[kind]
    path = write(tmp_path, pack(content))
    with pytest.raises(LingraftError) as caught:
        mnist.read_idx(path, SHAPE)
    message = str(caught.value)
    assert str(path) in message
    assert why in message
    assert "lingraft data fetch mnist" in message


@pytest.mark.parametrize("cut", [3, 12, 30, -8, -1])
def test_packed_file_cut_short(tmp_path: Path, cut: int):
    path = write(tmp_path, gzip.compress(idx(VALUES))[:cut])
    with pytest.raises(LingraftError, match="cannot be used"):
        mnist.read_idx(path, SHAPE)


def test_packed_file_with_a_changed_byte_fails_its_checksum(tmp_path: Path):
    content = bytearray(gzip.compress(idx(VALUES), compresslevel=0))
    content[60] ^= 1
    with pytest.raises(LingraftError, match=r"does not unpack.*CRC"):
        mnist.read_idx(write(tmp_path, bytes(content)), SHAPE)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bomb = gzip.compress(idx(VALUES) + bytes(50_000_000))
    asked = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda file, size=-1: asked.append(size) or read(file, size))
    with pytest.raises(LingraftError, match="holds more"):
        mnist.read_idx(write(tmp_path, bomb), SHAPE)
    assert asked == [16, 61]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.booleans(), st.booleans())
def test_random_bytes_are_only_ever_a_lingraft_error(
    tmp_path_factory, content: bytes, after_header: bool, packed: bool
):
    content = idx(VALUES)[:16] + content if after_header else content
    path = write(tmp_path_factory.getbasetemp(), gzip.compress(content) if packed else content, "fuzz")
    if after_header and len(content) == len(idx(VALUES)):
        mnist.read_idx(path, SHAPE)
    else:
        with pytest.raises(LingraftError):
            mnist.read_idx(path, SHAPE)


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_of_a_packed_file(tmp_path_factory, at: int, value: int):
    content = bytearray(gzip.compress(idx(VALUES)))
    content[at % len(content)] = value
    path = write(tmp_path_factory.getbasetemp(), bytes(content), "fuzz")
    with contextlib.suppress(LingraftError):  # some bytes, such as the time, do not matter
        np.testing.assert_array_equal(mnist.read_idx(path, SHAPE), VALUES)


def test_a_folder_instead_of_a_file(tmp_path: Path):
    with pytest.raises(LingraftError, match="cannot be read"):
        mnist.read_idx(tmp_path, SHAPE)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(DATASETS["mnist"], train_images=5, test_images=3, validation_images=2)
    monkeypatch.setitem(DATASETS, "mnist", spec)


def make(folder: Path, prefix: str, count: int, suffix: str = ".gz") -> tuple[np.ndarray, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(count)
    images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, count, dtype=np.uint8)
    pack = gzip.compress if suffix else bytes
    (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
    (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))
    return images, labels


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("place", ["mnist", ".", "MNIST/raw"])
def test_finds_the_files(tmp_path: Path, place: str, suffix: str):
    train = make(tmp_path / place, "train", 5, suffix)
    test = make(tmp_path / place, "t10k", 3, suffix)
    for part, (images, labels) in (("train", train), ("test", test)):
        data = mnist.read(part, tmp_path)
        assert data.images.shape == (len(images), 1, 28, 28)
        np.testing.assert_array_equal(data.images.numpy()[:, 0], images)
        np.testing.assert_array_equal(data.labels.numpy(), labels)


@pytest.mark.usefixtures("small")
def test_missing_names_file_folders_and_command(tmp_path: Path):
    make(tmp_path / "mnist", "train", 5)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(LingraftError) as caught:
        mnist.read("train", tmp_path)
    message = str(caught.value)
    for text in ("train-labels-idx1-ubyte", str(tmp_path / "mnist"), "lingraft data fetch mnist", "LINGRAFT_DATA"):
        assert text in message


@pytest.mark.usefixtures("small")
def test_label_that_is_no_digit(tmp_path: Path):
    make(tmp_path, "train", 5)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.array([1, 2, 10, 3, 4], dtype=np.uint8)))
    with pytest.raises(LingraftError, match="label 10 is not a digit"):
        mnist.read("train", tmp_path)


def test_fewer_images_than_published_are_refused(tmp_path: Path):
    make(tmp_path, "train", 5)
    with pytest.raises(LingraftError, match="5×28×28 values instead of 60000×28×28"):
        mnist.read("train", tmp_path)
