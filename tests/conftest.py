"""Shared by all tests: few threads, and the data and problems that only some machines have."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


def _folder(variable: str, what: str) -> Path:
    value = os.environ.get(variable)
    if not value or not Path(value).is_dir():
        pytest.skip(f"{variable} does not point at {what}")
    return Path(value)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder with MNIST, CIFAR-10 and SVHN in their official formats."""
    return _folder("LINGRAFT_DATA", "a folder with the unpacked data sets")


@pytest.fixture(scope="session")
def problems_folder() -> Path:
    """Folder with public verification problems."""
    return _folder("LINGRAFT_PROBLEMS", "a folder with verification problems")
