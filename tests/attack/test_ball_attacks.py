"""FGSM and PGD stay in the ball and the pixel range, and do what they are for."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.attack import fgsm, pgd
from lingraft.attack.ball import ascend, bounds, uniform_start
from lingraft.attack.gradient import cross_entropy, input_gradient
from lingraft.model import zoo


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return zoo.build("digits-cnn")


def some_images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, 8, 8, generator=generator)
    images[images < 0.2] = 0  # many pixels on the edge of the range, as in real images
    images[images > 0.8] = 1
    return images, torch.randint(10, (count,), generator=generator)


def assert_within(points: Tensor, images: Tensor, eps: float) -> None:
    assert points.shape == images.shape
    assert float(points.min()) >= 0
    assert float(points.max()) <= 1
    assert float((points - images).abs().max()) <= eps + 1e-6


@settings(max_examples=25, deadline=None)
@given(eps=st.floats(0, 1), steps=st.integers(1, 4), seed=st.integers(0, 10_000), step=st.floats(0.001, 2))
def test_attacks_stay_in_ball_and_range(eps: float, steps: int, seed: int, step: float) -> None:
    model = small_model()
    images, labels = some_images(5, seed)
    generator = torch.Generator().manual_seed(seed)
    assert_within(uniform_start(images, eps, generator), images, eps)
    assert_within(fgsm(model, images, labels, eps), images, eps)
    assert_within(pgd(model, images, labels, eps, generator, steps, step), images, eps)


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_attacks_raise_the_loss(attack: str) -> None:
    model = small_model()
    images, labels = some_images(64, 1)
    if attack == "fgsm":
        points = fgsm(model, images, labels, 0.1)
    else:
        points = pgd(model, images, labels, 0.1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = F.cross_entropy(model(images), labels, reduction="none")
        after = F.cross_entropy(model(points), labels, reduction="none")
    assert bool((after > before).all())


def test_pgd_is_stronger_than_fgsm_on_a_curved_loss() -> None:
    model = small_model(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # a less linear network, as after training
    images, labels = some_images(200, 2)
    one = fgsm(model, images, labels, 0.2)
    many = pgd(model, images, labels, 0.2, torch.Generator().manual_seed(0), steps=20)
    with torch.no_grad():
        assert F.cross_entropy(model(many), labels) > F.cross_entropy(model(one), labels)


def test_ascend_is_the_projected_sign_step() -> None:
    images = torch.tensor([[0.0, 0.5, 1.0, 0.5]])
    lower, upper = bounds(images, 0.1)
    gradient = torch.tensor([[-3.0, 2.0, 1.0, 0.0]])
    moved = ascend(images, gradient, 0.3, lower, upper)
    assert torch.allclose(moved, torch.tensor([[0.0, 0.6, 1.0, 0.5]]))


def test_input_gradient_leaves_weights_alone_and_images_independent() -> None:
    model = small_model()
    images, labels = some_images(6, 5)
    together, logits = input_gradient(model, images, cross_entropy(labels))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not together.requires_grad
    assert not logits.requires_grad
    alone, _ = input_gradient(model, images[2:3], cross_entropy(labels[2:3]))
    assert torch.allclose(together[2:3], alone, rtol=1e-4, atol=1e-7)


def test_uniform_start_fills_the_ball() -> None:
    images = torch.full((200, 1, 8, 8), 0.5)
    noise = (uniform_start(images, 0.1, torch.Generator().manual_seed(0)) - 0.5) / 0.1
    assert abs(float(noise.mean())) < 0.02
    assert abs(float(noise.var()) - 1 / 3) < 0.01
