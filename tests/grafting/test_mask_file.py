"""Masks in files."""

from pathlib import Path

import pytest
import torch

import lingraft
from lingraft import LingraftError
from lingraft.grafting.mask_file import load_mask, save_mask
from lingraft.model import zoo


@pytest.fixture
def sites():
    return lingraft.sites(zoo.build("digits-cnn"), (1, 8, 8))


def test_masks_are_kept_as_bits(tmp_path: Path, sites):
    mask = {site.name: torch.rand(site.shape) < 0.5 for site in sites}
    path = tmp_path / "mask.safetensors"
    save_mask(path, mask)
    assert path.stat().st_size < 1600 / 8 + 500
    loaded = load_mask(path)
    assert all(torch.equal(loaded[name], chosen) for name, chosen in mask.items())


def test_a_file_that_is_no_mask_is_named(tmp_path: Path):
    path = tmp_path / "mask.safetensors"
    with pytest.raises(LingraftError, match="missing"):
        load_mask(path)
    path.write_bytes(b"x" * 100)
    with pytest.raises(LingraftError, match="damaged"):
        load_mask(path)
    from lingraft.runs import save_tensors

    save_tensors(path, {"a": torch.zeros(3)})
    with pytest.raises(LingraftError, match="not a mask"):
        load_mask(path)
