"""Readers of data sets: idx, CIFAR-10 records and tar.gz, MATLAB."""

import gzip
import io
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.data import cifar10, load, mnist, svhn
from lingraft.errors import LingraftError

FUZZ = settings.get_profile("fuzz")


def idx() -> bytes:
    return b"\0\0\x08\x03" + struct.pack(">III", 3, 4, 4) + bytes(range(48))


@FUZZ
@given(data=st.data())
def test_idx(fuzzed: Any, place: Path, data: st.DataObject) -> None:
    path = place / "images"
    content = fuzzed.bytes(data, data.draw(st.sampled_from([idx(), gzip.compress(idx())])))
    path.write_bytes(gzip.compress(content) if data.draw(st.booleans()) else content)
    found = fuzzed.survive(lambda: mnist.read_idx(path, (3, 4, 4)))
    assert found is None or found.shape == (3, 4, 4)


@FUZZ
@given(data=st.data())
def test_cifar_records(fuzzed: Any, data: st.DataObject) -> None:
    content = fuzzed.bytes(data, bytes([3]) + bytes(3072) + bytes([9]) + bytes(3072))
    found = fuzzed.survive(lambda: cifar10.parse(Path("x.bin"), content, 2))
    assert found is None or found[1].max() < 10


def archive(name: str = "cifar-10-batches-bin/test_batch.bin") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = 3073
        tar.addfile(member, io.BytesIO(bytes(3073)))
    return file.getvalue()


@FUZZ
@given(data=st.data())
def test_cifar_archive(fuzzed: Any, place: Path, data: st.DataObject) -> None:
    path = place / cifar10.ARCHIVE
    if data.draw(st.booleans()):
        path.write_bytes(gzip.compress(fuzzed.bytes(data, archive()[:4096])))
    else:
        path.write_bytes(fuzzed.bytes(data, gzip.compress(archive())))
    with pytest.raises(LingraftError):  # it never has 10,000 records
        fuzzed.survive(lambda: cifar10.read("test", place)) or _fail()


def _fail() -> None:
    raise LingraftError("refused")


def test_an_archive_that_ends_in_its_header(tmp_path: Path) -> None:
    for length in range(12):
        (tmp_path / cifar10.ARCHIVE).write_bytes(gzip.compress(archive())[:length])
        with pytest.raises(LingraftError):
            cifar10.read("test", tmp_path)


@pytest.mark.parametrize("name", ["../../test_batch.bin", "/test_batch.bin", "a/../test_batch.bin"])
def test_nothing_of_an_archive_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / cifar10.ARCHIVE).write_bytes(gzip.compress(archive(name)))
    with pytest.raises(LingraftError):
        cifar10.read("test", tmp_path / "data")
    assert [path.name for path in tmp_path.rglob("*")] == ["data", cifar10.ARCHIVE]


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(name: str, kind: int, storage: int, values: np.ndarray) -> bytes:
    parts = [
        element(6, struct.pack("<II", kind, 0)),
        element(5, struct.pack(f"<{values.ndim}i", *values.shape)),
        element(1, name.encode()),
        element(storage, values.tobytes(order="F")),
    ]
    return element(14, b"".join(parts))


def mat(packed: bool) -> bytes:
    images = np.arange(2 * 3072, dtype=np.uint8).reshape(32, 32, 3, 2)
    variables = [matrix("X", 9, 2, images), matrix("y", 6, 9, np.array([[1.0], [10.0]]))]
    if packed:
        variables = [struct.pack("<II", 15, len(z)) + z for z in map(zlib.compress, variables)]
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\x01IM" + b"".join(variables)


@FUZZ
@given(data=st.data())
def test_mat(fuzzed: Any, place: Path, data: st.DataObject) -> None:
    path = place / "x.mat"
    path.write_bytes(fuzzed.bytes(data, mat(data.draw(st.booleans()))))
    found = fuzzed.survive(lambda: svhn.read_mat(path, 5))
    assert found is None or (found[0].shape[1:] == (3, 32, 32) and 0 <= found[1].min() <= found[1].max() <= 9)


@FUZZ
@given(data=st.data())
def test_npz(fuzzed: Any, place: Path, data: st.DataObject) -> None:
    file, path = io.BytesIO(), place / "x.npz"
    save = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    save(file, images=np.zeros((2, 1, 3, 3), np.float32), labels=np.arange(2), eps=np.float64(0.1))
    path.write_bytes(fuzzed.bytes(data, file.getvalue()))
    found = fuzzed.survive(lambda: load(str(path), "test"))
    assert found is None or found.images.shape[0] == len(found.labels)


def test_the_examples_are_good(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for packed in (False, True):
        path.write_bytes(mat(packed))
        assert svhn.read_mat(path, 5)[1].tolist() == [1, 0]
        path.write_bytes(gzip.compress(idx()) if packed else idx())
        assert mnist.read_idx(path, (3, 4, 4))[2, 3, 3] == 47


#: Four megabytes that unpack to 4 GiB of zeros: a gzip file may have many parts.
BOMB = gzip.compress(bytes(1 << 24)) * 256


def test_files_that_unpack_to_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(gzip.compress(idx()[:16]) + BOMB)
    with pytest.raises(LingraftError, match="more"):
        mnist.read_idx(path, (3, 4, 4))
    large = tarfile.TarInfo("readme.html")
    large.size = 4 << 30
    (tmp_path / cifar10.ARCHIVE).write_bytes(gzip.compress(large.tobuf()) + BOMB)
    with pytest.raises(LingraftError, match=r"readme\.html has 4,294,967,296 bytes"):
        cifar10.read("test", tmp_path)
    packing = zlib.compressobj()
    start, more = (packing.compress(bytes(1 << 24)) + packing.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    packed = start + more * 50
    path.write_bytes(mat(True)[:128] + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(LingraftError, match=r"(more|larger) than"):
        svhn.read_mat(path, 5)
