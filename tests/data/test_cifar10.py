"""The CIFAR-10 reader: the folder, the archive, and every kind of damage."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.data import cifar10

NAMES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
RECORDS = 4


def table(seed: int, records: int = RECORDS) -> np.ndarray:
    """Random records: a label byte below 10 and 3,072 pixels."""
    rng = np.random.default_rng(seed)
    content = rng.integers(0, 256, (records, 3073), dtype=np.uint8)
    content[:, 0] = rng.integers(0, 10, records)
    return content


TABLES = {name: table(seed) for seed, name in enumerate(NAMES)}


def write_folder(folder: Path, **changed: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in TABLES.items():
        (folder / name).write_bytes(changed.get(name.removesuffix(".bin"), content.tobytes()))


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


WHOLE = {f"cifar-10-batches-bin/{name}": content.tobytes() for name, content in reversed(TABLES.items())}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "_RECORDS", RECORDS)


def check(root: Path) -> None:
    for part, names in (("train", NAMES[:5]), ("test", NAMES[5:])):
        data = cifar10.read(part, root)
        expected = np.concatenate([TABLES[name] for name in names])
        assert data.images.dtype == torch.uint8
        assert data.labels.tolist() == expected[:, 0].tolist()
        # the format: 1,024 red, then green, then blue values, row by row
        for channel in range(3):
            plane = expected[:, 1 + 1024 * channel :][:, :1024].reshape(-1, 32, 32)
            np.testing.assert_array_equal(data.images[:, channel].numpy(), plane)


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."])
def test_reads_the_folder(tmp_path: Path, place: str):
    write_folder(tmp_path / place)
    check(tmp_path)


@pytest.mark.parametrize("place", [".", "cifar10"])
def test_reads_the_archive_without_writing_anything(tmp_path: Path, place: str):
    (tmp_path / place).mkdir(exist_ok=True)
    path = tmp_path / place / "cifar-10-binary.tar.gz"
    path.write_bytes(archive({"cifar-10-batches-bin/batches.meta.txt": b"airplane\n", **WHOLE}))
    before = sorted(tmp_path.rglob("*"))
    check(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_with_gaps_gives_way_to_the_archive(tmp_path: Path):
    write_folder(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(LingraftError, match=r"data_batch_3\.bin"):
        cifar10.read("train", tmp_path)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive(WHOLE))
    check(tmp_path)


def test_missing_names_file_folders_and_command(tmp_path: Path):
    with pytest.raises(LingraftError) as caught:
        cifar10.read("test", tmp_path)
    message = str(caught.value)
    for text in ("cifar-10-binary.tar.gz", "test_batch.bin", str(tmp_path), "lingraft data fetch cifar10"):
        assert text in message


BATCH = TABLES["data_batch_2.bin"].tobytes()
DAMAGE = {
    "empty": (b"", "holds 0"),
    "a byte short": (BATCH[:-1], "holds 12,291"),
    "a record short": (BATCH[:-3073], "holds 9,219"),
    "a byte more": (BATCH + b"\x00", "holds more"),
    "a label of 10": (b"\x0a" + BATCH[1:], "label 10"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_batch(tmp_path: Path, kind: str, packed: bool):
    content, why = DAMAGE[kind]
    if packed:
        path = tmp_path / "cifar-10-binary.tar.gz"
        path.write_bytes(archive({**WHOLE, "cifar-10-batches-bin/data_batch_2.bin": content}))
    else:
        path = tmp_path / "cifar-10-batches-bin"
        write_folder(path, data_batch_2=content)
    with pytest.raises(LingraftError) as caught:
        cifar10.read("train", tmp_path)
    message = str(caught.value)
    assert str(path / "data_batch_2.bin") in message
    assert why in message
    assert "lingraft data fetch cifar10" in message
    assert len(cifar10.read("test", tmp_path)) == RECORDS  # the other part is not affected


@pytest.mark.parametrize("cut", [0, 1, 10, 1000, -20_000, -2_000])
def test_archive_cut_short(tmp_path: Path, cut: int):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive(WHOLE)[:cut])
    with pytest.raises(LingraftError, match=r"cifar-10-binary\.tar\.gz.* cannot be used"):
        cifar10.read("train", tmp_path)


def test_archive_without_a_batch(tmp_path: Path):
    members = {name: content for name, content in WHOLE.items() if "batch_4" not in name}
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive(members))
    with pytest.raises(LingraftError, match=r"data_batch_4\.bin is not in it"):
        cifar10.read("train", tmp_path)


def test_archive_with_a_link_or_a_folder_in_place_of_a_batch(tmp_path: Path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in WHOLE:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if "batch_1" in name else tarfile.SYMTYPE
            info.linkname = "/etc/passwd"
            tar.addfile(info)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(buffer.getvalue())
    with pytest.raises(LingraftError, match="cannot be used"):
        cifar10.read("train", tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(["raw", "gzip", "tar"]))
def test_random_bytes_are_only_ever_a_lingraft_error(tmp_path_factory, content: bytes, inside: str):
    if inside == "gzip":
        content = gzip.compress(content)
    elif inside == "tar":
        content = archive({"cifar-10-batches-bin/test_batch.bin": content})
    root = tmp_path_factory.getbasetemp()
    (root / "cifar-10-binary.tar.gz").write_bytes(content)
    with pytest.raises(LingraftError):
        cifar10.read("test", root)


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 10**6), value=st.integers(0, 255), head=st.booleans())
def test_a_changed_byte_of_the_archive(tmp_path_factory, at: int, value: int, head: bool):
    content = archive({"test_batch.bin": TABLES["test_batch.bin"].tobytes()})
    tar = bytearray(gzip.decompress(content) if head else content)
    tar[at % (512 if head else len(tar))] = value
    root = tmp_path_factory.getbasetemp()
    (root / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(bytes(tar), 1) if head else bytes(tar))
    try:
        data = cifar10.read("test", root)
    except LingraftError:
        return
    assert len(data) == RECORDS
