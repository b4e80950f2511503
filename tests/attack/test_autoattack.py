"""AutoAttack on networks plain and grafted: in the ball, no weaker than PGD, at odds with no proof, and leaving no trace."""

import copy
import sys

import pytest
import torch
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.attack import autoattack as module
from lingraft.attack.ball import bounds
from lingraft.attack.evaluation import Attack, correct, evaluate
from lingraft.attack.registry import FUNCTIONS
from lingraft.data import ImageSet, load

EPS, IMAGES = 0.08, 24


@pytest.fixture
def shorter(monkeypatch):
    """The attacks as they are, but with fewer steps: thousands take longer than a test may."""
    pytest.importorskip("torchattacks")
    for name, count in {"STEPS": 10, "TARGETS": 3, "QUERIES": 50}.items():
        monkeypatch.setattr(module, name, count)


@pytest.mark.slow
def test_it_breaks_what_pgd_breaks_and_nothing_that_is_proven(digits_net, shorter):
    data = load("digits", "test").take(IMAGES)
    neurons = torch.arange(64).view(4, 4, 4) % 8 == 0
    for model in (digits_net, lingraft.graft(digits_net, {"1": neurons}).eval()):
        found = evaluate(model, data, Attack(EPS, "autoattack"))
        pgd = evaluate(model, data, Attack(EPS, steps=10, restarts=1))
        assert 0 < found.ra <= pgd.ra < found.sa == pgd.sa
        assert found.name == f"autoattack eps={EPS} images={IMAGES} seed=0"
        verdicts = lingraft.verify(model, data.pixels(), data.labels, eps=EPS, workers=0)
        assert verdicts.summary.va <= found.ra


def test_it_stays_in_the_ball_and_leaves_no_trace(digits_net, shorter):
    data = load("digits", "test").take(IMAGES)
    images, labels = data.pixels(), data.labels
    grads = [parameter.grad for parameter in digits_net.parameters()]
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first, second = (
        module.autoattack(digits_net, images, labels, EPS, torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert torch.equal(torch.rand(2), expected), "the random numbers of others"
    assert all(parameter.requires_grad for parameter in digits_net.parameters())
    assert all(a is b for a, b in zip(grads, (p.grad for p in digits_net.parameters()), strict=True))
    assert torch.equal(first, second), "the same seed gives the same"
    lower, upper = bounds(images, EPS)
    assert bool(((first >= lower) & (first <= upper)).all())
    moved = (first != images).flatten(1).any(1)
    with torch.no_grad():
        wrong = digits_net(first).argmax(1) != labels
    assert bool(wrong[moved].all())
    assert int(moved.sum()) > int((~correct(digits_net, data)).sum())


def test_features_and_few_classes(shorter):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5)).eval()
    images = torch.rand(20, 6)
    labels = model(images).argmax(1)
    found = module.autoattack(copy.deepcopy(model), images, labels, 0.3, torch.Generator().manual_seed(0))
    assert found.shape == images.shape
    assert bool((model(found).argmax(1) != labels).any())
    two = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    with pytest.raises(LingraftError, match="needs 4 classes"):
        evaluate(
            two, ImageSet(torch.rand(3, 1, 2, 2), two(torch.rand(3, 1, 2, 2)).argmax(1)), Attack(0.1, "autoattack")
        )


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchattacks", None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(LingraftError, match=r"pip install 'lingraft\[autoattack\]'"):
        Attack(0.1, "autoattack")
    with pytest.raises(LingraftError, match="lingraft's own"):
        lingraft.attack.register("autoattack")
    assert "autoattack" in FUNCTIONS
