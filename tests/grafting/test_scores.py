"""Instability and significance against computing them neuron by neuron."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lingraft
from lingraft import LingraftError
from lingraft.data import ImageSet
from lingraft.grafting import (
    ActivationGradient,
    ActivationMagnitude,
    GraftingConfig,
    Instability,
    Scores,
    score,
    unstable_ratio,
)
from lingraft.solver.methods import METHODS

EPS = 0.1


def pieces(model: nn.Sequential) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (m.weight.detach().double().numpy(), m.bias.detach().double().numpy()) for m in (model[1], model[3], model[5])
    ]


def activations(model: nn.Sequential, image: Tensor) -> tuple[np.ndarray, np.ndarray]:
    (w1, b1), (w2, b2), _ = pieces(model)
    first = np.maximum(w1 @ image.double().numpy().ravel() + b1, 0)
    return first, np.maximum(w2 @ first + b2, 0)


def naive_unstable(model: nn.Sequential, images: Tensor) -> list[np.ndarray]:
    """Counts by interval arithmetic, one neuron and one weight at a time."""
    counts = [np.zeros(6), np.zeros(5)]
    for image in images.double().numpy():
        low, high = np.clip(image.ravel() - EPS, 0, 1), np.clip(image.ravel() + EPS, 0, 1)
        for layer, (weight, bias) in enumerate(pieces(model)[:2]):
            lower, upper = np.zeros(len(bias)), np.zeros(len(bias))
            for i in range(len(bias)):
                ends = [(w * a, w * b) for w, a, b in zip(weight[i], low, high, strict=True)]
                lower[i] = sum(min(pair) for pair in ends) + bias[i]
                upper[i] = sum(max(pair) for pair in ends) + bias[i]
                counts[layer][i] += lower[i] < 0 < upper[i]
            low, high = np.maximum(lower, 0), np.maximum(upper, 0)
    return counts


def test_instability_matches_intervals_by_hand(small, own_images):
    counts = Instability(EPS, "intervals").score(small, own_images)
    for found, expected in zip(counts.values(), naive_unstable(small, own_images.images), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)
    assert 0 < sum(count.sum() for count in counts.values()) < 11 * 20
    expected_ratio = sum(count.sum().item() for count in counts.values()) / (11 * 20)
    assert unstable_ratio(small, own_images, EPS, "intervals") == pytest.approx(expected_ratio)


@pytest.mark.parametrize("bounds", METHODS)
def test_grafted_neurons_are_never_unstable(small, own_images, bounds):
    scorer, own_images = Instability(EPS, bounds), own_images.take(8)
    counts = scorer.score(small, own_images)
    name = max(counts, key=lambda name: float(counts[name].sum()))
    assert counts[name].any()
    mask = {name: counts[name] > 0}
    assert not scorer.score(lingraft.graft(small, mask), own_images)[name].any()


def test_tighter_bounds_leave_fewer_neurons_unstable_and_none_that_is(own_model, own_images):
    few = own_images.take(5)
    counts = {name: Instability(0.02, name).score(own_model, few) for name in METHODS}
    generator = torch.Generator().manual_seed(0)
    seen = {site: torch.zeros_like(count) for site, count in counts["crown"].items()}
    watched = lingraft.grafting.prepared(own_model, {site: count.shape for site, count in seen.items()})
    pre: dict[str, Tensor] = {}
    for site in seen:
        hook = watched.get_submodule(site).register_forward_pre_hook
        hook(lambda _module, args, site=site: pre.update({site: args[0].detach()}))
    for image in few.images:
        noise = torch.rand(300, *image.shape, generator=generator) * 2 - 1
        watched((image + 0.02 * noise).clamp(0, 1))
        for site in seen:
            seen[site] += (pre[site] < 0).any(0) & (pre[site] > 0).any(0)
    for site in seen:
        assert (counts["alpha-crown"][site] <= counts["crown"][site]).all()
        assert (counts["crown"][site] <= counts["intervals"][site]).all()
        if watched.get_submodule(site).base.pieces is not None:
            assert (seen[site] <= counts["alpha-crown"][site]).all()


def test_magnitude_matches_the_mean_by_hand(small, own_images):
    means = ActivationMagnitude(batch=6).score(small, own_images)
    expected = [np.mean([activations(small, image)[k] for image in own_images.images], axis=0) for k in (0, 1)]
    for found, mean in zip(means.values(), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), mean, atol=1e-6)


def test_gradients_match_differences_by_hand(small, own_images):
    """Move one activation of one image at a time and watch the loss."""
    scores = ActivationGradient(batch=6).score(small, own_images)
    (_, _), (w2, b2), (w3, b3) = pieces(small)

    def loss(logits: np.ndarray, label: int) -> float:
        return float(F.cross_entropy(torch.from_numpy(logits)[None], torch.tensor([label])))

    def from_second(second: np.ndarray, label: int) -> float:
        return loss(w3 @ second + b3, label)

    def from_first(first: np.ndarray, label: int) -> float:
        return from_second(np.maximum(w2 @ first + b2, 0), label)

    step = 1e-6
    sums = [np.zeros(6), np.zeros(5)]
    for image, label in zip(own_images.images, own_images.labels.tolist(), strict=True):
        for layer, (values, tail) in enumerate(zip(activations(small, image), (from_first, from_second), strict=True)):
            for i in range(len(values)):
                moved = [values + sign * step * np.eye(len(values))[i] for sign in (1, -1)]
                sums[layer][i] += abs(tail(moved[0], label) - tail(moved[1], label)) / (2 * step)
    for found, total in zip(scores.values(), sums, strict=True):
        np.testing.assert_allclose(found.numpy(), total / 20, atol=1e-4)


def test_nan_weights_are_refused(small, own_images):
    with torch.no_grad():
        small[3].bias[0] = torch.nan
    with pytest.raises(LingraftError, match=r"NaN or infinite weights in 3\.bias"):
        score(small, own_images, GraftingConfig(EPS))


class WithGradient:
    """A significance of one's own that forgot to detach its result."""

    def score(self, model, data):
        found = lingraft.sites(model, tuple(data.images.shape[1:]))
        return {site.name: torch.rand(site.shape, requires_grad=True) for site in found}


def test_own_scores_with_a_graph_can_be_kept(tmp_path: Path, small, own_images: ImageSet):
    scores = score(small, own_images, GraftingConfig(EPS), WithGradient())
    assert scores.facts["significance"] == "WithGradient"
    scores.save(tmp_path / "scores.npz")
    assert Scores.load(tmp_path / "scores.npz").significance.keys() == scores.significance.keys()


def test_scores_are_kept_in_a_file(tmp_path: Path, small, own_images: ImageSet):
    scores = score(small, own_images, GraftingConfig(EPS))
    path = tmp_path / "scores.npz"
    scores.save(path)
    loaded = Scores.load(path)
    assert loaded.facts == scores.facts
    for name in scores.significance:
        assert torch.equal(loaded.significance[name], scores.significance[name])
        assert torch.equal(loaded.instability_rank[name], scores.instability_rank[name])
    with np.load(path, allow_pickle=False) as archive:  # raw values and ranks, for whoever has only NumPy
        np.testing.assert_array_equal(archive["instability/raw/2"], scores.instability["2"])
        np.testing.assert_array_equal(archive["significance/rank/4"], scores.significance_rank["4"])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"something else"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "scores.npz"
    with pytest.raises(LingraftError, match="missing"):
        Scores.load(path)
    path.write_bytes(content)
    with pytest.raises(LingraftError, match=r"scores\.npz is damaged"):
        Scores.load(path)


def test_gradients_before_the_activation_are_those_after_it_where_it_is_on(small):
    one = ImageSet(torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0]))
    after = ActivationGradient().score(small, one)
    before = ActivationGradient(before=True).score(small, one)
    for name, values in zip(after, activations(small, one.images[0]), strict=True):
        on = torch.from_numpy(values > 0)
        assert 0 < on.sum() < len(on)
        torch.testing.assert_close(before[name], torch.where(on, after[name], 0.0))
