"""A little training on a few digits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lingraft.data import ImageSet, load
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run
from lingraft.training import Destination, History, OnEpoch, TrainingConfig, TrainingData, train_network


@pytest.fixture(scope="session")
def few_digits() -> tuple[ImageSet, ImageSet]:
    """192 training images and 48 validation images."""
    return load("digits", "train").take(192), load("digits", "validation").take(48)


@pytest.fixture
def description() -> ModelDescription:
    return ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.1)


Train = Callable[..., tuple[nn.Module, History]]


@pytest.fixture
def train_few(few_digits: tuple[ImageSet, ImageSet], description: ModelDescription) -> Train:
    """train(folder, restart=…, on_epoch=…, **settings of TrainingConfig) on the few digits."""

    def run_training(
        folder: Path, *, restart: bool = False, on_epoch: OnEpoch = lambda history: None, **settings: Any
    ) -> tuple[nn.Module, History]:
        chosen = {"eps": 0.1, "epochs": 3, "batch": 64, "lr": 0.05, "validation_steps": 2, **settings}
        torch.manual_seed(chosen.get("seed", 0))
        model = zoo.build("digits-cnn")
        destination = Destination(Run(folder), description, restart)
        history = train_network(
            model, TrainingData(*few_digits), TrainingConfig(**chosen), destination, on_epoch=on_epoch
        )
        return model, history

    return run_training
