"""Each loss against the same thing written out plainly, in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft.model import zoo
from lingraft.training import Loss, TrainingConfig, make_loss, total
from lingraft.training.fast import FastAdversarialLoss, misalignment
from lingraft.training.loss import Figures, loss_at
from lingraft.training.madry import PgdLoss
from lingraft.training.standard import StandardLoss
from lingraft.training.trades import TradesLoss

EPS = 0.1


@pytest.fixture(params=["digits-cnn", "resnet-4b", "sigmoid-cnn"])
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return zoo.build(request.param, (1, 8, 8)).double()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(12, 1, 8, 8, generator=generator, dtype=torch.float64)
    images[images < 0.3] = 0
    return images, torch.randint(10, (12,), generator=generator)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def assert_same(model: nn.Module, ours: Tensor, plain: Tensor) -> None:
    assert torch.allclose(ours, plain, rtol=1e-10, atol=0)
    for a, b in zip(gradients(model, ours), gradients(model, plain), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-12)


def plain_input_gradient(model: nn.Module, images: Tensor, labels: Tensor, create_graph: bool) -> Tensor:
    images = images.clone().requires_grad_(True)
    loss = F.cross_entropy(model(images), labels)
    return torch.autograd.grad(loss, images, create_graph=create_graph)[0]


def plain_fast_loss(
    model: nn.Module, images: Tensor, labels: Tensor, grad_align: float, aligned: int | None = None
) -> Tensor:
    """FGSM, then GradAlign, each with gradients of its own, step by step as the papers write them."""
    delta = torch.empty_like(images).uniform_(-EPS, EPS, generator=generator())
    start = torch.clamp(images + delta, 0, 1)
    gradient = plain_input_gradient(model, start, labels, create_graph=False)
    adversarial = start + 1.25 * EPS * torch.sign(gradient)
    adversarial = torch.max(torch.min(adversarial, images + EPS), images - EPS)
    adversarial = torch.clamp(adversarial, 0, 1)
    loss = F.cross_entropy(model(adversarial), labels)
    first = plain_input_gradient(model, images, labels, create_graph=False).flatten(1)
    second = plain_input_gradient(model, start, labels, create_graph=True).flatten(1)
    cosine = (first / first.norm(dim=1, keepdim=True) * second / second.norm(dim=1, keepdim=True)).sum(1)
    return loss + grad_align * (1 - cosine[:aligned].mean())


@pytest.mark.parametrize("grad_align", [0.0, 0.2, 3.0])
def test_fast(model: nn.Module, batch: tuple[Tensor, Tensor], grad_align: float) -> None:
    loss, figures = FastAdversarialLoss(EPS, grad_align=grad_align)(model, *batch, generator())
    assert_same(model, loss, plain_fast_loss(model, *batch, grad_align))
    assert set(figures) == {"adversarial_accuracy"} | ({"grad_align"} if grad_align else set())
    assert all(not figure.requires_grad for figure in figures.values())


def test_grad_align_on_a_part(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    count = len(batch[0])
    for share, aligned in ((0.5, math.ceil(count / 2)), (1.0, count), (1e-9, count), (1 - 1e-9, count)):
        loss, _ = FastAdversarialLoss(EPS, grad_align=3.0, grad_align_share=share)(model, *batch, generator())
        assert_same(model, loss, plain_fast_loss(model, *batch, 3.0, aligned))


def test_pgd(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    images, labels = batch
    point = torch.clamp(images + torch.empty_like(images).uniform_(-EPS, EPS, generator=generator()), 0, 1)
    for _ in range(3):
        gradient = plain_input_gradient(model, point, labels, create_graph=False)
        point = point + 2.5 * EPS / 3 * torch.sign(gradient)
        point = torch.clamp(torch.max(torch.min(point, images + EPS), images - EPS), 0, 1)
    loss, _ = PgdLoss(EPS, steps=3)(model, images, labels, generator())
    assert_same(model, loss, F.cross_entropy(model(point), labels))


def test_trades(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    images, labels = batch
    noise = torch.empty_like(images).normal_(0, 0.001, generator=generator())
    point = torch.clamp(images + noise, 0, 1)
    for _ in range(3):
        point = point.detach().requires_grad_(True)
        kl = F.kl_div(F.log_softmax(model(point), 1), F.softmax(model(images), 1).detach(), reduction="sum")
        point = point + 2.5 * EPS / 3 * torch.sign(torch.autograd.grad(kl, point)[0])
        point = torch.clamp(torch.max(torch.min(point, images + EPS), images - EPS), 0, 1).detach()
    clean = model(images)
    kl = F.kl_div(F.log_softmax(model(point), 1), F.softmax(clean, 1), reduction="sum") / len(images)
    plain = F.cross_entropy(clean, labels) + 6 * kl
    loss, figures = TradesLoss(EPS, steps=3)(model, images, labels, generator())
    assert_same(model, loss, plain)
    assert torch.allclose(figures["divergence"], kl)


def test_standard_is_cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    loss, figures = StandardLoss()(model, *batch, generator())
    assert torch.equal(loss, F.cross_entropy(model(batch[0]), batch[1]))
    assert figures == {}


def test_misalignment() -> None:
    g = torch.randn(4, 1, 3, 3, dtype=torch.float64)
    assert math.isclose(float(misalignment(g, 5 * g)), 0, abs_tol=1e-12)
    assert math.isclose(float(misalignment(g, -g)), 2)
    a, b = torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)
    a[0, 0, 0, 0], b[0, 0, 1, 1] = 3, 4
    assert float(misalignment(a, b)) == 1


def test_an_image_without_gradient_is_left_out_of_gradalign() -> None:
    fixed = torch.randn(3, 1, 2, 2)
    gradient = torch.randn(3, 1, 2, 2)
    fixed[0] = 0
    gradient[1] = 0
    gradient.requires_grad_()
    value = misalignment(fixed, gradient)
    assert torch.allclose(value, misalignment(fixed[2:], gradient[2:]))
    value.backward()
    assert gradient.grad is not None
    assert bool(torch.isfinite(gradient.grad).all())
    assert float(misalignment(torch.zeros(2, 1, 2, 2), torch.zeros(2, 1, 2, 2))) == 0


def test_total_is_the_weighted_sum(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    def smallness(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Figures]:
        value = sum((parameter**2).sum() for parameter in model.parameters())
        assert isinstance(value, Tensor)
        return value, {"smallness": value.detach()}

    loss, figures = total((1, StandardLoss()), (0.5, smallness))(model, *batch, generator())
    parts = StandardLoss()(model, *batch, generator())[0], smallness(model, *batch, generator())[0]
    assert torch.allclose(loss, parts[0] + 0.5 * parts[1])
    assert torch.equal(figures["smallness"], parts[1])


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"method": "fat"}, FastAdversarialLoss),
        ({"method": "pgd"}, PgdLoss),
        ({"method": "trades"}, TradesLoss),
        ({"eps": 0.0}, StandardLoss),
    ],
)
def test_make_loss(settings: dict[str, object], kind: type[Loss]) -> None:
    assert isinstance(make_loss(TrainingConfig(**{"eps": 0.1, **settings})), kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["fat", "pgd", "trades"])
def test_the_ball_of_training_may_be_larger_and_grow(method: str) -> None:
    config = TrainingConfig(eps=0.1, method=method, eps_factor=1.25, warm_up=1, ramp=2, epochs=5)
    loss = make_loss(config)
    sizes = [loss_at(loss, time).eps.eps for time in (0.0, 0.9, 2.0, 3.0, math.inf)]  # type: ignore[attr-defined]
    assert sizes[:2] == [0.0, 0.0]
    assert 0 < sizes[2] < 0.125
    assert sizes[3:] == [0.125, 0.125]
    assert config.eps == 0.1  # what is measured and proven


def test_a_ball_of_radius_0_is_standard_training(batch: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    model = zoo.build("digits-cnn", (1, 8, 8)).double()
    loss = make_loss(TrainingConfig(eps=0.1, grad_align=0, ramp=1))
    assert_same(model, loss_at(loss, 0.0)(model, *batch, generator())[0], F.cross_entropy(model(batch[0]), batch[1]))
