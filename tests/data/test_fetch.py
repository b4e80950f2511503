"""Fetching whole data sets, over a real connection to this machine."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from lingraft import LingraftError
from lingraft.data import DATASETS, fetch, load
from lingraft.data.download import Patience
from lingraft.data.specs import PublishedFile, Source

QUICK = Patience(stall=0.3, rounds=2, pause=0.01)


def idx(*shape: int) -> bytes:
    values = np.random.default_rng(shape[0]).integers(0, 10, shape, dtype=np.uint8)
    return gzip.compress(struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape) + values.tobytes())


@pytest.fixture
def small_mnist(web, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """MNIST with 8 + 3 images, published at the local server; gives its files by name."""
    files = {
        "train-images-idx3-ubyte.gz": idx(8, 28, 28),
        "train-labels-idx1-ubyte.gz": idx(8),
        "t10k-images-idx3-ubyte.gz": idx(3, 28, 28),
        "t10k-labels-idx1-ubyte.gz": idx(3),
    }
    published = tuple(
        PublishedFile(f"mnist/{name}", len(content), hashlib.md5(content).hexdigest())
        for name, content in files.items()
    )
    source = Source((web.address + "first/", web.address + "second/"), published)
    spec = replace(DATASETS["mnist"], train_images=8, validation_images=2, test_images=3, source=source)
    monkeypatch.setitem(DATASETS, "mnist", spec)
    web.files.update(files)
    return files


def test_fetched_data_can_be_loaded(web, small_mnist: dict[str, bytes], tmp_path: Path):
    new = fetch("mnist", tmp_path, patience=QUICK)
    assert {path.name: path.read_bytes() for path in new} == small_mnist
    assert [len(load("mnist", split, tmp_path)) for split in ("train", "validation", "test")] == [6, 2, 3]
    assert [path for path, _ in web.requests] == [f"/first/{name}" for name in small_mnist]


def test_a_complete_data_set_is_left_alone(web, small_mnist: dict[str, bytes], tmp_path: Path):
    fetch("mnist", tmp_path, patience=QUICK)
    # the same images packed in another way have another checksum, and are complete all the same
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(
        gzip.decompress(small_mnist["t10k-labels-idx1-ubyte.gz"])
    )
    web.requests.clear()
    assert fetch("mnist", tmp_path, patience=QUICK) == []
    assert web.requests == []


def test_only_what_is_wanting_is_fetched(web, small_mnist: dict[str, bytes], tmp_path: Path):
    fetch("mnist", tmp_path, patience=QUICK)
    damaged = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    web.requests.clear()
    assert [path.name for path in fetch("mnist", tmp_path, patience=QUICK)] == [
        "train-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]
    assert len(web.requests) == 2
    assert len(load("mnist", "train", tmp_path)) == 6


def test_the_second_address_helps_out(web, small_mnist: dict[str, bytes], tmp_path: Path):
    web.script = [web.status(404)]
    assert len(fetch("mnist", tmp_path, patience=QUICK)) == 4
    assert web.requests[1] == ("/second/train-images-idx3-ubyte.gz", None)


@pytest.mark.parametrize("slash", ["", "/", "//"])
def test_another_address(web, small_mnist: dict[str, bytes], tmp_path: Path, slash: str):
    fetch("mnist", tmp_path, web.address + "own/mirror" + slash, QUICK)
    assert {path for path, _ in web.requests} == {f"/own/mirror/{name}" for name in small_mnist}


def test_a_failed_file_keeps_what_came_before(web, small_mnist: dict[str, bytes], tmp_path: Path):
    del web.files["t10k-images-idx3-ubyte.gz"]
    with pytest.raises(LingraftError, match="t10k-images-idx3-ubyte"):
        fetch("mnist", tmp_path, patience=QUICK)
    names = sorted(path.name for path in (tmp_path / "mnist").iterdir())
    assert names == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]


def test_digits_need_nothing(tmp_path: Path):
    assert fetch("digits", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["file:///etc", "ftp://host/", "host/folder", "", "https://"])
def test_address_that_is_none(tmp_path: Path, address: str):
    with pytest.raises(LingraftError, match="https://host/folder/"):
        fetch("mnist", tmp_path, address)


def test_unknown_name(tmp_path: Path):
    with pytest.raises(LingraftError, match="Did you mean 'mnist'"):
        fetch("mnsit", tmp_path)


def test_the_published_table_is_sound():
    sources = {name: spec.source for name, spec in DATASETS.items() if spec.source}
    assert set(sources) == set(DATASETS) - {"digits"}
    sums = [file.md5 for source in sources.values() for file in source.files]
    assert all(len(md5) == 32 and set(md5) <= set("0123456789abcdef") for md5 in sums)
    assert len(set(sums)) == len(sums)
    for source in sources.values():
        for address in source.addresses:
            parts = urlsplit(address)
            assert parts.scheme in ("http", "https")
            assert parts.netloc
            assert parts.path.endswith("/")
