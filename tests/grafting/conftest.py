"""A small robust network for digits, and one that is small enough to compute by hand."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lingraft.data import ImageSet, load
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run
from lingraft.training import Destination, TrainingConfig, TrainingData, train_network


@pytest.fixture(scope="session")
def digits() -> dict[str, ImageSet]:
    """The splits of the digits."""
    return {split: load("digits", split) for split in ("train", "validation", "test")}


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory, digits: dict[str, ImageSet]) -> Path:
    """A run with a network that was trained to be robust on digits for a few seconds."""
    run = Run(tmp_path_factory.mktemp("runs") / "digits")
    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    description = ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.1)
    config = TrainingConfig(0.1, epochs=6, batch=64, lr=0.05, schedule="one-cycle", validation_steps=3)
    data = TrainingData(digits["train"], digits["validation"])
    train_network(model, data, config, Destination(run, description), on_epoch=())
    return run.path


@pytest.fixture
def small() -> nn.Sequential:
    """16 pixels → 6 → 5 → 3 classes."""
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)
    return nn.Sequential(*layers).eval()
