"""An attack of a user's own: used by its name, held to the ball, and no name is taken twice."""

import pytest
import torch

from lingraft import LingraftError
from lingraft.attack import fgsm, register
from lingraft.attack.evaluation import Attack, evaluate
from lingraft.attack.registry import FUNCTIONS
from lingraft.data import load


@pytest.fixture
def own(monkeypatch):
    """`register` for the time of a test."""
    monkeypatch.setitem(FUNCTIONS, "own", None)
    return register("own")


@pytest.mark.slow
def test_a_registered_attack_gives_what_the_same_attack_of_lingraft_gives(digits_net, own):
    own(lambda model, images, labels, eps, generator: fgsm(model, images, labels, eps))
    data = load("digits", "test").take(120)
    mine, theirs = (evaluate(digits_net, data, Attack(0.08, name), batch=50) for name in ("own", "fgsm"))
    assert mine.ra == theirs.ra < theirs.sa
    assert mine.name.startswith("own-1x100 ")


def test_each_restart_is_another_draw_and_the_same_seed_gives_the_same(digits_net, own):
    def noise(model, images, labels, eps, generator):
        step = torch.rand(images.shape, generator=generator).sub(0.5).sign() * eps
        return (images + step).clamp(0, 1)

    own(noise)
    data = load("digits", "test").take(120)
    once, again, many = (evaluate(digits_net, data, Attack(0.2, "own", restarts=n)).ra for n in (1, 1, 20))
    assert once == again
    assert many < once


def test_an_attack_that_leaves_the_ball_is_an_error(digits_net, own):
    own(lambda model, images, labels, eps, generator: images + 2 * eps)
    with pytest.raises(LingraftError, match="leaves the ball"):
        evaluate(digits_net, load("digits", "test").take(10), Attack(0.1, "own"))


def test_an_attack_that_changes_the_shape_is_an_error(digits_net, own):
    own(lambda model, images, labels, eps, generator: images[:, 0])
    with pytest.raises(LingraftError, match="shape"):
        evaluate(digits_net, load("digits", "test").take(10), Attack(0.1, "own"))


def test_names_of_lingraft_are_taken_and_unknown_ones_are_listed():
    with pytest.raises(LingraftError, match="lingraft's own"):
        register("pgd")
    with pytest.raises(LingraftError, match="pgd"):
        Attack(0.1, "pgdd")
