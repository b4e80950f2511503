"""What intervals certify."""

import torch
from torch import nn

from lingraft.data import ImageSet, load
from lingraft.differentiable.certify import certified_by_intervals
from lingraft.evaluation import Attack, correct, robust
from lingraft.verification.verify import verify


def test_certified_images_are_verified_and_withstand_attacks(digits_net: nn.Module) -> None:
    data, eps = load("digits", "test").take(60), 0.01
    certified = certified_by_intervals(digits_net, data, eps)
    assert 10 < int(certified.sum()) < 60  # the claims below are about some images, and not trivial
    right = correct(digits_net, data)
    assert (certified <= robust(digits_net, data, right, Attack(eps, steps=5, restarts=2))).all()
    some = certified.nonzero().flatten()[:5]
    results = verify(digits_net, data.pixels(some), data.labels[some], eps=eps, workers=1)
    assert [result.verdict for result in results] == ["verified"] * 5


def test_at_radius_0_it_is_the_standard_accuracy_whatever_the_batch(digits_net: nn.Module) -> None:
    data = load("digits", "test").take(60)
    for batch in (7, 60):
        assert torch.equal(certified_by_intervals(digits_net, data, 0.0, batch=batch), correct(digits_net, data))


def test_ties_and_the_model_s_type_and_mode() -> None:
    """Equal logits are no proof; the model keeps its type and its mode."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    nn.init.zeros_(model[1].weight)
    nn.init.zeros_(model[1].bias)
    data = ImageSet(torch.rand(3, 1, 2, 2), torch.arange(3))
    assert not certified_by_intervals(model, data, 0.1).any()
    model[1].bias.data[1] = 1e-3
    assert certified_by_intervals(model, data, 0.1).tolist() == [False, True, False]
    assert model.training
    assert model[1].weight.dtype == torch.float32
