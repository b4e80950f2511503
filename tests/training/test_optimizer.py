"""Groups of parameters and their learning rates."""

from pathlib import Path

import torch

from lingraft.data import ImageSet
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run
from lingraft.training import (
    Destination,
    Plan,
    TrainingConfig,
    TrainingData,
    fit,
)
from lingraft.training.standard import StandardLoss


def test_each_group_has_its_learning_rate(
    tmp_path: Path, few_digits: tuple[ImageSet, ImageSet], description: ModelDescription
) -> None:
    torch.manual_seed(0)
    model = zoo.build("digits-cnn")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    first, *rest = model.parameters()
    plan = Plan(
        TrainingConfig(0.0, schedule="cosine", epochs=1),
        loss=StandardLoss(),
        groups=[{"params": [first], "lr": 0.0}, {"params": rest, "lr": 0.01}],
        settings={},
    )
    fit(model, TrainingData(*few_digits), plan, Destination(Run(tmp_path), description), on_epoch=())
    assert torch.equal(first, before[0])
    assert all(not torch.equal(a, b) for a, b in zip(rest, before[1:], strict=True))
