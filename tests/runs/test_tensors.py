"""Tensors in files, with what is said about them."""

import os
from pathlib import Path

import pytest
import torch
from small_runs import untrained_run

import lingraft
from lingraft import LingraftError
from lingraft.runs import load_tensors, save_tensors


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    run, model = untrained_run(tmp_path)
    torch.save(model.state_dict(), run.weights_path)
    with pytest.raises(LingraftError, match="damaged"):
        lingraft.load(tmp_path)


def test_tensors_and_metadata_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.rand(2, 3).T, "b": torch.tensor([True, False])}
    save_tensors(tmp_path / "x.safetensors", tensors, {"settings": {"eps": 0.1, "list": [1, None]}})
    back, metadata = load_tensors(tmp_path / "x.safetensors")
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    assert metadata == {"settings": {"eps": 0.1, "list": [1, None]}}
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "x.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask
