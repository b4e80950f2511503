"""Margins attacked behind the box of a hidden layer (TAPS): values, gradients, and what cannot be cut."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft import LingraftError
from lingraft.training.certified import ATTACKED_WEIGHT, CertifiedLoss
from lingraft.training.differentiable import (
    Interval,
    attacked_margins,
    clean_pass,
    graph_of,
    interval_bounds,
    margin_intervals,
)
from lingraft.training.differentiable.latent import REACH, connected

SomeBox = Callable[..., tuple[Tensor, Tensor, Interval]]


def both(network: nn.Module, some_box: SomeBox, sites: int, steps: int = 5) -> tuple[Tensor, Tensor]:
    """The attacked margins, and the bounds of intervals."""
    _, labels, box = some_box()
    graph = graph_of(network)
    found = interval_bounds(graph, *box)
    generator = torch.Generator().manual_seed(0)
    attacked = attacked_margins(graph, found, box, labels, sites, generator, steps=steps)
    return attacked, margin_intervals(graph, found.last, labels).lower


@pytest.mark.parametrize("name", ["plain", "grafted", "batch-norm"])
def test_with_nothing_but_the_last_layer_it_is_intervals(
    build: Callable[[str], nn.Module], some_box: SomeBox, name: str
) -> None:
    attacked, bounds = both(build(name), some_box, 0)
    torch.testing.assert_close(attacked, bounds)


@pytest.mark.parametrize("sites", [1, 2])
def test_it_is_never_below_the_bounds_and_zero_at_the_labels(
    build: Callable[[str], nn.Module], some_box: SomeBox, sites: int
) -> None:
    _, labels, _ = some_box()
    attacked, bounds = both(build("plain"), some_box, sites)
    assert (attacked >= bounds - 1e-12).all()
    assert (attacked.gather(1, labels.unsqueeze(1)) == 0).all()
    assert bool((attacked > bounds + 1e-3).any())  # what is attacked does not have the slack of intervals


def test_of_the_whole_network_it_is_an_attack_on_the_image(
    build: Callable[[str], nn.Module], some_box: SomeBox, samples: Callable[[Interval], Tensor]
) -> None:
    network = build("plain")
    _, labels, box = some_box()
    attacked, _ = both(network, some_box, 2, steps=20)
    for points in samples(box):
        logits = network(points)
        margins = logits.gather(1, labels.unsqueeze(1)) - logits
        assert (attacked <= margins + 0.05).all()


def test_gradients_of_the_weights_behind_the_box_are_those_of_differences(
    build: Callable[[str], nn.Module], some_box: SomeBox
) -> None:
    network = build("plain")
    last = network[-1].bias
    value = both(network, some_box, 1)[0].sum()
    (gradient,) = torch.autograd.grad(value, last)
    for k in range(len(last)):
        ends = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                last[k] += step
            ends.append(float(both(network, some_box, 1)[0].sum().detach()))
        with torch.no_grad():
            last[k] += 1e-6
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float(gradient[k]), abs=1e-5)


def test_gradients_before_the_box_are_those_of_intervals_where_the_rest_is_linear(
    build: Callable[[str], nn.Module], some_box: SomeBox
) -> None:
    """A linear rest is attacked in a corner, where the connector passes gradients on whole: exactly those of IBP."""
    network = build("plain")
    weights = list(network.parameters())
    attacked, bounds = both(network, some_box, 0)
    ours, theirs = (torch.autograd.grad(x.sum(), weights, retain_graph=True) for x in (attacked, bounds))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_flow_to_all_weights_with_activations_behind_the_box(
    build: Callable[[str], nn.Module], some_box: SomeBox
) -> None:
    network = build("plain")
    attacked, _ = both(network, some_box, 1)
    for gradient in torch.autograd.grad(attacked.sum(), list(network.parameters())[:-1]):  # biases at last cancel
        assert float(gradient.abs().max()) > 0


def test_the_connector_by_hand() -> None:
    lower, upper = torch.zeros(6, dtype=torch.float64), torch.full((6,), 2.0, dtype=torch.float64)
    upper[5] = 0.0
    lower.requires_grad_(), upper.requires_grad_()
    points = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 0.0], dtype=torch.float64)
    value = connected(points, Interval(lower, upper))
    torch.testing.assert_close(value, points)
    below, above = torch.autograd.grad(value.sum(), (lower, upper))
    assert REACH == 0.5
    assert below.tolist() == [1, 0.5, 0, 0, 0, 0.5]
    assert above.tolist() == [0, 0, 0, 0.5, 1, 0.5]


def test_batch_norm_has_the_statistics_of_the_clean_images(
    build: Callable[[str], nn.Module], some_box: SomeBox
) -> None:
    network = build("batch-norm").train()
    images, labels, _ = some_box()
    graph = graph_of(network)
    logits, statistics = clean_pass(graph, images)
    point = Interval(images, images)
    found = interval_bounds(graph, *point, statistics)
    running = network[0][1].running_mean.clone()
    attacked = attacked_margins(graph, found, point, labels, 3, torch.Generator(), statistics=statistics)
    torch.testing.assert_close(attacked, logits.gather(1, labels.unsqueeze(1)) - logits)
    torch.testing.assert_close(network[0][1].running_mean, running)


def test_a_shortcut_around_the_box_and_too_many_sites_are_refused(
    build: Callable[[str], nn.Module], some_box: SomeBox
) -> None:
    with pytest.raises(LingraftError, match=r"another way from the image.*--attacked-sites"):
        both(build("batch-norm"), some_box, 1)
    with pytest.raises(LingraftError, match="the network has 2"):
        both(build("plain"), some_box, 3)


def test_the_loss_is_the_product_of_both_and_weighs_the_attack(
    build: Callable[[str], nn.Module], some_box: SomeBox
) -> None:
    network = build("plain")
    images, labels, _ = some_box()
    attacked, bounds = both(network, some_box, 1, steps=3)
    loss = CertifiedLoss(0.1, attacked_sites=1, attack_steps=3)
    value, figures = loss(network, images, labels, torch.Generator().manual_seed(0))
    one, other = (F.cross_entropy(-margins, labels, reduction="none") for margins in (attacked, bounds))
    torch.testing.assert_close(value, (one * other).mean())
    weighted = (ATTACKED_WEIGHT * one * other.detach() + one.detach() * other).mean()
    weights = [p for name, p in network.named_parameters() if name.endswith("weight")]
    for ours, theirs in zip(torch.autograd.grad(value, weights), torch.autograd.grad(weighted, weights), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "certified_accuracy" in figures
