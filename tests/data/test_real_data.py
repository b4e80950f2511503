"""The published files themselves, where they are."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
import torch

from lingraft.data import DATASETS, SPLITS, ImageSet, inventory, load
from lingraft.data.mnist import locate


@pytest.fixture(scope="module")
def sets(data_folder: Path) -> dict[tuple[str, str], ImageSet]:
    names = ("mnist", "svhn", "cifar10")
    return {(name, split): load(name, split, data_folder) for name in names for split in SPLITS}


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10"])
def test_shapes_and_ranges(sets, name: str):
    for split in SPLITS:
        data = sets[name, split]
        assert data.images.dtype == torch.uint8
        assert data.images.shape[1:] == DATASETS[name].input_shape
        assert (int(data.images.min()), int(data.images.max())) == (0, 255)
        assert torch.bincount(data.labels).shape == (10,)
        pixels = data.pixels(slice(500))
        assert pixels.min() >= 0
        assert pixels.max() <= 1


def test_counts(sets):
    counts = {key: len(data) for key, data in sets.items()}
    assert (counts["mnist", "train"], counts["mnist", "validation"]) == (54_000, 6_000)
    assert (counts["cifar10", "train"], counts["cifar10", "validation"]) == (45_000, 5_000)
    assert counts["mnist", "test"] == counts["cifar10", "test"] == 10_000
    assert counts["svhn", "validation"] == 5_000
    assert counts["svhn", "train"] + 5_000 <= 73_257
    assert counts["svhn", "test"] <= 26_032


def test_label_histograms_are_the_published_ones(sets):
    def histogram(name: str, *splits: str) -> list[int]:
        return torch.bincount(torch.cat([sets[name, split].labels for split in splits]), minlength=10).tolist()

    assert histogram("cifar10", "train", "validation") == [5_000] * 10
    assert histogram("cifar10", "test") == [1_000] * 10
    # http://yann.lecun.com/exdb/mnist
    assert histogram("mnist", "train", "validation") == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert histogram("mnist", "test") == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_first_labels_are_the_published_ones(sets):
    assert sets["mnist", "train"].labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert sets["mnist", "test"].labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert sets["cifar10", "train"].labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert sets["cifar10", "test"].labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert sets["svhn", "train"].labels[:10].tolist() == [1, 9, 2, 3, 2, 5, 9, 3, 3, 1]
    assert sets["svhn", "test"].labels[:10].tolist() == [5, 2, 1, 0, 6, 1, 9, 1, 1, 8]


@pytest.mark.parametrize(("name", "tolerance"), [("cifar10", 0.001), ("svhn", 0.02)])
def test_channel_means_are_those_of_the_normalization(sets, name: str, tolerance: float):
    images = torch.cat([sets[name, split].images for split in ("train", "validation")])
    mean = images.double().mean((0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx(DATASETS[name].mean, abs=tolerance)


def test_unpacked_mnist_gives_the_same(sets, data_folder: Path, tmp_path: Path):
    for kind in ("images-idx3", "labels-idx1"):
        name = f"t10k-{kind}-ubyte"
        content = locate(data_folder, name).read_bytes()
        (tmp_path / name).write_bytes(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    raw = load("mnist", "test", tmp_path)
    assert torch.equal(raw.images, sets["mnist", "test"].images)
    assert torch.equal(raw.labels, sets["mnist", "test"].labels)


def test_archived_cifar_gives_the_same(sets, tmp_path: Path):
    expected = sets["cifar10", "test"]
    content = torch.cat([expected.labels.to(torch.uint8)[:, None], expected.images.flatten(1)], 1).numpy().tobytes()
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    packed = load("cifar10", "test", tmp_path)
    assert torch.equal(packed.images, expected.images)
    assert torch.equal(packed.labels, expected.labels)


def test_mnist_content_has_the_published_sum(data_folder: Path):
    # of the unpacked file: the same images packed anew have another sum
    content = locate(data_folder, "t10k-labels-idx1-ubyte").read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    assert hashlib.md5(content).hexdigest() == "27ae3e4e09519cfbb04c329615203637"


def test_inventory(data_folder: Path):
    states = {holding.name: holding.state for holding in inventory(folder=data_folder)}
    assert states["digits"] == states["mnist"] == states["cifar10"] == "complete"
    assert states["svhn"] in ("complete", "shorter")
