"""He initialization keeps the signal."""

import torch

from lingraft.model import zoo
from lingraft.training import TrainingConfig, draw, initialize


def spread(model: torch.nn.Module) -> float:
    """How much the logits of different images differ."""
    with torch.no_grad():
        return float(model(torch.rand(64, 1, 28, 28)).std(0).mean())


def test_images_are_told_apart_from_the_start() -> None:
    torch.manual_seed(0)
    model = zoo.build("conv-big", (1, 28, 28))
    before = spread(model)
    assert initialize(model) is model
    assert spread(model) > 5 * before


def test_it_depends_on_the_seed_of_torch_alone() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(initialize(zoo.build("digits-cnn")))
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_sigmoid_networks_keep_their_weights() -> None:
    model = zoo.build("sigmoid-cnn")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    initialize(model)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_the_weights_of_torch_are_kept_if_asked_for() -> None:
    torch.manual_seed(3)
    model = zoo.build("digits-cnn")
    weights = [p.clone() for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(draw(model, "torch").parameters(), weights, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(draw(model, "he").parameters(), weights, strict=True))
    assert TrainingConfig(0.1, initialization="torch").as_dict()["initialization"] == "torch"
    assert "initialization" not in TrainingConfig(0.1).as_dict()
