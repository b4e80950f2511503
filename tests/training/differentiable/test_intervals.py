"""Differentiable bounds: sound, as tight as the verifier's, exact at radius 0, and with the right gradients."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from crown_margins import crown_margins
from torch import Tensor, nn

import lingraft
from lingraft.training.differentiable import (
    Interval,
    clean_pass,
    crown_cross_entropy,
    graph_of,
    interval_bounds,
    margin_intervals,
    worst_cross_entropy,
)

SHAPE = (1, 4, 4)
Draw = Callable[..., tuple[Tensor, Tensor, Interval]]


def margins_of(logits: Tensor, labels: Tensor) -> Tensor:
    """logit[label] − logit[k] of (…, N, classes)."""
    own = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    return logits.gather(-1, own) - logits


@pytest.mark.parametrize("eps", [0.01, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_for_every_image_of_the_box(
    network: nn.Module, some_box: Draw, samples: Callable[[Interval], Tensor], seed: int, eps: float
) -> None:
    _, labels, box = some_box(seed, eps)
    graph = graph_of(network)
    found = interval_bounds(graph, *box)
    margins = margin_intervals(graph, found.last, labels)
    logits = torch.stack([network(points) for points in samples(box)])
    real = margins_of(logits, labels)
    assert (real >= margins.lower - 1e-12).all()
    assert (real <= margins.upper + 1e-12).all()
    assert (real >= crown_margins(network, box, labels) - 1e-12).all()
    losses = torch.stack([F.cross_entropy(each, labels, reduction="none") for each in logits])
    assert (losses <= crown_cross_entropy(graph, found, box, labels) + 1e-12).all()
    assert (losses.mean(1) <= worst_cross_entropy(margins.lower, labels) + 1e-12).all()


def test_at_radius_0_bounds_are_the_forward_pass(network: nn.Module, some_box: Draw) -> None:
    images, labels, box = some_box(eps=0.0)
    graph = graph_of(network)
    found = interval_bounds(graph, *box)
    expected = margins_of(network(images), labels)
    for bound in (*margin_intervals(graph, found.last, labels), crown_margins(network, box, labels)):
        torch.testing.assert_close(bound, expected, atol=1e-12, rtol=0)
    losses = F.cross_entropy(network(images), labels, reduction="none")
    torch.testing.assert_close(crown_cross_entropy(graph, found, box, labels), losses, atol=1e-12, rtol=0)
    value = crown_cross_entropy(graph, found, box, labels).sum()
    gradients = torch.autograd.grad(value, list(network.parameters()), allow_unused=True)
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients if gradient is not None)


def test_folding_the_label_into_the_last_layer_is_tighter(build: Callable[[str], nn.Module], some_box: Draw) -> None:
    model = build("plain")
    _, labels, box = some_box()
    graph = graph_of(model)
    found = interval_bounds(graph, *box)
    layer = model[-1]
    center, radius = (found.last.upper + found.last.lower) / 2, (found.last.upper - found.last.lower) / 2
    middle, spread = layer(center), radius @ layer.weight.abs().T
    apart = (middle - spread).gather(1, labels[:, None]) - (middle + spread)
    folded = margin_intervals(graph, found.last, labels).lower
    others = ~F.one_hot(labels, 3).bool()
    assert (folded[others] > apart[others]).all()
    assert (folded[~others] == 0).all()


def slope_along(value: Callable[[], Tensor], model: nn.Module) -> tuple[float, float]:
    """The derivative of `value` along a random direction of the weights: by autograd, and by central differences."""
    weights = [p for p in model.parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in weights]
    gradients = torch.autograd.grad(value(), weights, allow_unused=True)
    exact = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True) if g is not None)
    step, ends = 1e-6, []
    for sign in (1, -2):
        with torch.no_grad():
            for p, d in zip(weights, direction, strict=True):
                p.add_(d, alpha=sign * step)
        ends.append(float(value().detach()))
    return exact, (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("kind", ["intervals", "crown"])
def test_gradients_are_those_of_differences(network: nn.Module, some_box: Draw, kind: str) -> None:
    """Also of slopes and intercepts of grafted neurons, and through the statistics of a batch."""
    images, labels, box = some_box()
    network.train()
    graph = graph_of(network)

    def value() -> Tensor:
        _, statistics = clean_pass(graph, images)
        found = interval_bounds(graph, *box, statistics)
        if kind == "crown":
            return crown_cross_entropy(graph, found, box, labels, statistics).mean()
        return worst_cross_entropy(margin_intervals(graph, found.last, labels).lower, labels)

    exact, differences = slope_along(value, network)
    assert exact == pytest.approx(differences, rel=1e-5, abs=1e-7)
    assert exact != 0


def test_a_network_of_grafted_neurons_alone_is_bounded_exactly(
    build: Callable[[str], nn.Module], some_box: Draw
) -> None:
    model = build("plain")
    masks = {site.name: torch.ones(site.shape, dtype=torch.bool) for site in lingraft.sites(model, SHAPE)}
    model = lingraft.graft(model, masks, slope=-0.6, intercept=0.2)
    images, labels, box = some_box()
    bound = crown_margins(model, box, labels)
    for k in range(3):
        x = images.clone().requires_grad_()
        margin = margins_of(model(x), labels)[:, k]
        (gradient,) = torch.autograd.grad(margin.sum(), x)
        worst = torch.where(gradient > 0, box.lower, box.upper)  # a linear function is lowest at a corner
        torch.testing.assert_close(bound[:, k], margins_of(model(worst), labels)[:, k], atol=1e-12, rtol=0)


def test_batch_norm_in_training_mode_uses_the_statistics_of_the_clean_images(
    build: Callable[[str], nn.Module], some_box: Draw, samples: Callable[[Interval], Tensor]
) -> None:
    model, frozen = build("batch-norm").train(), build("batch-norm")
    images, labels, box = some_box()
    before = [m.running_mean.clone() for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    graph = graph_of(model)
    logits, statistics = clean_pass(graph, images)
    found = interval_bounds(graph, *box, statistics)
    margins = margin_intervals(graph, found.last, labels)
    normalizers = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for own, old in zip(normalizers, before, strict=True):
        assert not torch.equal(own.running_mean, old)  # updated, once
        assert int(own.num_batches_tracked) == 1
    for module, (mean, variance) in zip(
        (m for m in frozen.modules() if isinstance(m, nn.BatchNorm2d)), statistics.values(), strict=True
    ):
        module.running_mean.copy_(mean.detach())
        module.running_var.copy_(variance.detach())
    torch.testing.assert_close(frozen(images), logits)
    for points in samples(box):
        real = margins_of(frozen(points), labels)
        assert (real >= margins.lower - 1e-9).all()
        assert (real <= margins.upper + 1e-9).all()
    assert not graph_of(frozen).normalizes_by_batch


def test_a_leaky_relu_that_falls_and_rises(some_box: Draw, samples: Callable[[Interval], Tensor]) -> None:
    """Its least value is at 0, not at an end of the interval; grafted neurons beside it have their lines."""
    _, _, box = some_box(eps=0.3)
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.LeakyReLU(-0.7)).double()
    for mask in (torch.zeros(6).bool(), torch.arange(6) % 3 == 0):
        model = lingraft.graft(model, {"2": mask}, slope=-0.4)
        found = interval_bounds(graph_of(model), *box)
        values = torch.stack([model(points) for points in samples(box)])
        assert (values >= found.last.lower - 1e-12).all()
        assert (values <= found.last.upper + 1e-12).all()
        lower, upper = found.sites["2"]
        both = (lower < 0) & (upper > 0) & ~mask
        assert both.any()
        assert (found.last.lower[both] == 0).all()
