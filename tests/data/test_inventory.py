"""The inventory: complete, shorter, missing or damaged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from lingraft import LingraftError
from lingraft.data import DATASETS, inventory


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(DATASETS["svhn"], train_images=10, validation_images=3, test_images=6)
    monkeypatch.setitem(DATASETS, "svhn", spec)


def write(folder: Path, part: str, count: int) -> Path:
    path = folder / f"{part}_32x32.mat"
    scipy.io.savemat(path, {"X": np.zeros((32, 32, 3, count), dtype=np.uint8), "y": np.ones((count, 1))})
    return path


def test_all_there(tmp_path: Path):
    write(tmp_path, "train", 10)
    write(tmp_path, "test", 6)
    (holding,) = inventory(["svhn"], tmp_path)
    assert (holding.name, holding.state, holding.remarks) == ("svhn", "complete", ())
    assert (holding.train, holding.validation, holding.test) == (7, 3, 6)


def test_shorter_is_usable_and_said(tmp_path: Path):
    write(tmp_path, "train", 8)
    write(tmp_path, "test", 6)
    (holding,) = inventory(["svhn"], tmp_path)
    assert holding.state == "shorter"
    assert (holding.train, holding.validation, holding.test) == (5, 3, 6)
    assert holding.remarks == ("svhn: the train file has 8 of 10 published images; that is usable.",)


def test_one_file_missing(tmp_path: Path):
    write(tmp_path, "test", 4)
    (holding,) = inventory(["svhn"], tmp_path)
    assert holding.state == "missing"
    assert (holding.train, holding.validation, holding.test) == (None, None, 4)
    assert len(holding.remarks) == 2
    assert "train_32x32.mat" in holding.remarks[0]


def test_damaged_is_worse_than_missing(tmp_path: Path):
    path = write(tmp_path, "test", 6)
    path.write_bytes(path.read_bytes()[:-30])
    (holding,) = inventory(["svhn"], tmp_path)
    assert holding.state == "damaged"
    assert holding.test is None
    assert str(path) in holding.remarks[1]


def test_nothing_left_to_train_on(tmp_path: Path):
    write(tmp_path, "train", 3)
    write(tmp_path, "test", 6)
    (holding,) = inventory(["svhn"], tmp_path)
    assert holding.state == "damaged"
    assert (holding.train, holding.validation) == (None, None)


def test_an_empty_folder_has_only_the_digits(tmp_path: Path):
    holdings = inventory(folder=tmp_path / "nowhere")
    assert {holding.name: holding.state for holding in holdings} == {
        "digits": "complete",
        "mnist": "missing",
        "svhn": "missing",
        "cifar10": "missing",
    }


def test_unknown_name(tmp_path: Path):
    with pytest.raises(LingraftError, match="unknown data set 'imagenet'"):
        inventory(["imagenet"], tmp_path)
