"""Loading by name: splits, the embedded digits, and where files are looked for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import platformdirs
import pytest
import scipy.io
import torch

from lingraft import LingraftError
from lingraft.data import DATASETS, SPLITS, data_root, load
from lingraft.model import zoo


def write_svhn(folder: Path, train: int, test: int) -> None:
    """SVHN files whose images are told apart by their first pixel."""
    (folder / "svhn").mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        images = np.zeros((32, 32, 3, count), dtype=np.uint8)
        images[0, 0, 0] = np.arange(count) % 256
        labels = np.arange(count)[:, None] % 10 + 1
        scipy.io.savemat(folder / "svhn" / f"{part}_32x32.mat", {"X": images, "y": labels})


def test_svhn_keeps_the_last_images_of_what_is_there_for_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(DATASETS, "svhn", replace(DATASETS["svhn"], validation_images=5))
    write_svhn(tmp_path, 12, 4)
    first_pixel = {split: load("svhn", split, tmp_path).images[:, 0, 0, 0].tolist() for split in SPLITS}
    assert first_pixel == {"train": list(range(7)), "validation": list(range(7, 12)), "test": list(range(4))}


def test_too_few_images_to_split(tmp_path: Path):
    write_svhn(tmp_path, 5000, 4)
    for split in ("train", "validation"):
        with pytest.raises(LingraftError, match=r"5,000 images, and the last 5,000 are for validation"):
            load("svhn", split, tmp_path)
    assert len(load("svhn", "test", tmp_path)) == 4


def test_the_environment_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_svhn(tmp_path / "here", 1, 3)
    monkeypatch.setenv("LINGRAFT_DATA", str(tmp_path / "here"))
    assert data_root() == tmp_path / "here"
    assert len(load("svhn", "test")) == 3
    with pytest.raises(LingraftError, match=str(tmp_path / "there")):
        load("svhn", "test", tmp_path / "there")


@pytest.mark.parametrize("value", [None, ""])
def test_default_folder_is_the_platforms(monkeypatch: pytest.MonkeyPatch, value: str | None):
    if value is None:
        monkeypatch.delenv("LINGRAFT_DATA", raising=False)
    else:
        monkeypatch.setenv("LINGRAFT_DATA", value)
    assert data_root() == Path(platformdirs.user_cache_dir("lingraft", appauthor=False))


def test_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINGRAFT_DATA", "~/data")
    assert data_root() == Path.home() / "data"


def test_unknown_names(tmp_path: Path):
    with pytest.raises(LingraftError, match="Did you mean 'cifar10'"):
        load("cifar-10", "train", tmp_path)
    with pytest.raises(LingraftError, match="Known: train, validation, test"):
        load("digits", "valid", tmp_path)


def test_digits_splits_are_disjoint_whole_and_balanced(tmp_path: Path):
    from sklearn.datasets import load_digits

    flat, labels = load_digits(return_X_y=True)
    sets = {split: load("digits", split, tmp_path) for split in SPLITS}
    spec = DATASETS["digits"]
    assert len(sets["train"]) + len(sets["validation"]) == spec.train_images
    assert len(sets["validation"]) == spec.validation_images
    assert len(sets["test"]) == spec.test_images
    # together they are the published images, each once
    ours = torch.cat([torch.cat([s.images.flatten(1) * 16, s.labels[:, None]], 1) for s in sets.values()])
    theirs = np.column_stack([flat, labels])
    np.testing.assert_array_equal(np.unique(ours.numpy(), axis=0), np.unique(theirs, axis=0))
    assert len(ours) == len(theirs) == 1797
    for data in sets.values():
        counts = torch.bincount(data.labels, minlength=10)
        assert counts.max() - counts.min() <= 0.1 * counts.max()


def test_digits_are_the_same_every_time(tmp_path: Path):
    first, second = load("digits", "test", tmp_path), load("digits", "test", tmp_path)
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)


def test_normalization_of_digits_is_that_of_the_training_images(tmp_path: Path):
    pixels = load("digits", "train", tmp_path).pixels()
    spec = DATASETS["digits"]
    assert pixels.mean().item() == pytest.approx(spec.mean[0], abs=1e-4)
    assert pixels.std(correction=0).item() == pytest.approx(spec.std[0], abs=1e-4)


@pytest.mark.parametrize("name", DATASETS)
def test_specs_fit_the_zoo(name: str):
    spec = DATASETS[name]
    assert spec.name == name
    assert spec.classes == len(set(spec.class_names)) == 10
    assert len(spec.mean) == len(spec.std) == spec.input_shape[0]
    assert spec.validation_images < spec.train_images
    assert spec.augment == (name == "cifar10")
    model = zoo.build("digits-cnn", spec.input_shape, spec.classes, spec.mean, spec.std)
    assert model(torch.rand(2, *spec.input_shape)).shape == (2, 10)
