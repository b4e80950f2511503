"""Radii and ranges of values: what people write, what they mean, and the boxes that they make."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft import LingraftError, Region
from lingraft.attack import fgsm, pgd
from lingraft.attack.ball import uniform_start
from lingraft.attack.evaluation import Attack, evaluate
from lingraft.ball import (
    PIXELS,
    Ball,
    Values,
    eps_name,
    kept,
    kept_range,
    largest,
    radius,
    require_inside,
    shown,
    value_range,
)  # fmt: skip
from lingraft.data import ImageSet
from lingraft.training.fast import FastAdversarialLoss
from lingraft.training.trades import TradesLoss

SHAPES = [(6,), (4, 3), (2, 3, 3)]


def test_what_people_write_for_a_radius() -> None:
    assert radius("2/255") == 2 / 255
    assert radius(0.1) == 0.1, "a Python number keeps all its digits"
    assert radius(torch.tensor(0.5)) == 0.5
    assert radius(1) == 1.0
    listed = radius([0.1, "1/4", 0])
    assert isinstance(listed, Values)
    assert listed.tensor.tolist() == [0.1, 0.25, 0.0]
    assert listed == radius(torch.tensor([0.1, 0.25, 0.0], dtype=torch.float64))
    assert largest(listed) == 0.25


@pytest.mark.parametrize("eps", ["", "2/0", "nan", -1, math.inf, [0.1, -0.1], [], [[1], [1, 2]], True, None, "1e999"])
def test_what_is_no_radius(eps: object) -> None:
    with pytest.raises(LingraftError, match="eps"):
        radius(eps)


def test_what_people_write_for_a_range() -> None:
    assert value_range((0, 255)) == value_range("0,255") == value_range([0.0, 255.0])
    assert value_range(None) is None
    assert value_range("none") is None
    assert value_range((0, math.inf)) == (0.0, math.inf)
    assert value_range((0, 1)) == PIXELS


@pytest.mark.parametrize(
    "clip", [0, (1, 0), (0,), (0, 1, 2), "a,b", (math.nan, 1), ([0, 1], [0, 1]), ([0, 1], [1, 2, 3])]
)
def test_what_is_no_range(clip: object) -> None:
    with pytest.raises(LingraftError, match="clip"):
        value_range(clip)


def test_they_are_kept_whole_and_told_apart() -> None:
    fine = torch.rand(3, 4, dtype=torch.float64)
    for eps in (0.1, Values(fine)):
        assert radius(json.loads(json.dumps(kept(eps)))) == eps
    for clip in (PIXELS, None, (-math.inf, 3.0), (Values(fine), Values(fine + 1))):
        assert value_range(json.loads(json.dumps(kept_range(clip), allow_nan=False))) == clip
    other = fine.clone()
    other[0, 0] += 1e-15
    assert eps_name(Values(fine)) != eps_name(Values(other))
    assert shown((Values(fine), Values(fine + 1))) != shown((Values(other), Values(fine + 1)))
    assert Values(fine) != Values(fine.view(12))


@st.composite
def balls(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, object, object]:
    """Samples (N, *shape), ε and the ends of the range, all of that shape, and what a person wrote for the last two."""
    shape, count = draw(st.sampled_from(SHAPES)), 5
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    scale = 10.0 ** draw(st.integers(-2, 3))
    images = scale * torch.randn(count, *shape, generator=generator)
    form = draw(st.sampled_from(["number", "feature", "last axis", "sample", "all"]))
    written = {
        "number": torch.rand((), generator=generator),
        "feature": torch.rand(shape, generator=generator),
        "last axis": torch.rand(shape[-1:], generator=generator),
        "sample": torch.rand(count, generator=generator),
        "all": torch.rand(count, *shape, generator=generator),
    }[form] * scale
    eps = written.view(-1, *(1 for _ in shape)) if form == "sample" else written
    low, high = images.amin(0), images.amax(0)
    clip = draw(st.sampled_from([None, (float(low.min()), float(high.max())), (low, high)]))
    return images, eps.double().expand(images.shape), written, clip


@settings(max_examples=60, deadline=None)
@given(balls())
def test_boxes_are_exactly_those_asked_for_and_attacks_stay_inside(case) -> None:
    images, eps, written, clip = case
    limits = value_range(clip)
    ball = Ball.around(written, images.shape, limits)
    lower, upper = ball.bounds(images.double())
    expected = images.double() - eps, images.double() + eps
    if clip is not None:
        low, high = (torch.as_tensor(end, dtype=torch.float64) for end in clip)
        expected = torch.maximum(expected[0], low), torch.minimum(expected[1], high)
    assert torch.equal(lower, expected[0])
    assert torch.equal(upper, expected[1])
    for i in range(len(images)):
        region = Region.within(ball.at(slice(i, i + 1)), images[i])
        assert torch.equal(region.lower, lower[i])
        assert torch.equal(region.upper, upper[i])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(images[0].numel(), 3))
    labels, generator = torch.arange(5) % 3, torch.Generator().manual_seed(0)
    rounding = 1e-6 * (1 + images.abs().max().double() + eps.max())
    for points in (
        fgsm(model, images, labels, ball),
        pgd(model, images, labels, ball, generator, 3),
        uniform_start(images, ball, generator),
    ):
        assert bool((points >= lower - rounding).all() and (points <= upper + rounding).all())
    moved = (fgsm(model, images, labels, ball) - images).abs().double()
    whole = torch.isclose(moved, eps, rtol=1e-4, atol=float(rounding)) | (clip is not None)
    assert bool((whole | (moved == 0)).all()), (
        "as far as ε, or nowhere, where the loss is so small that it has no slope"
    )


def test_losses_look_in_the_ball_that_they_are_given() -> None:
    """A feature with radius 0 is never changed: whatever the loss does there, the model sees the sample's own value."""
    seen: list[torch.Tensor] = []

    class Watched(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    torch.manual_seed(0)
    images, labels = 50 + 10 * torch.randn(8, 4), torch.arange(8) % 3
    eps = torch.tensor([0.0, 5.0, 0.5, 1.0])
    ball = Ball.around(eps, images.shape, None)
    for loss in (FastAdversarialLoss(ball), TradesLoss(ball, steps=3)):
        seen.clear()
        loss(Watched(4, 3), images, labels, torch.Generator().manual_seed(0))
        far = torch.stack([(points - images).abs().amax(0) for points in seen]).amax(0)
        assert far[0] == 0
        assert bool((far <= eps + 1e-4).all())
        assert far[1] > 1, "but where the radius is large, they use it"


def test_a_radius_for_each_sample() -> None:
    """Each sample is attacked in a ball of its own: those with radius 0 survive, those with a large one do not."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0], [-1.0, 0]]))
        model.bias.zero_()
    images = torch.tensor([[3.0, 0]]).repeat(6, 1)
    data = ImageSet(images, torch.zeros(6, dtype=torch.int64), clip=None)
    eps = torch.tensor([0.0, 4, 0, 4, 4, 2.9])
    for name in ("pgd", "fgsm"):
        found = evaluate(model, data, Attack(eps, name, steps=5, restarts=1))
        assert (found.sa, found.ra) == (1.0, 0.5), name
        first = evaluate(model, data, Attack(eps, name, steps=5, restarts=1), images=2)
        assert first.ra == 0.5, "those of the first samples"
    assert found.name != evaluate(model, data, Attack(eps + 1, "fgsm")).name
    assert found.name != evaluate(model, data.within((-9, 9)), Attack(eps, "fgsm")).name


def test_what_may_mean_two_things_is_refused() -> None:
    with pytest.raises(LingraftError, match=r"for each of 4 samples or for each feature.*eps.view\(-1, 1\)"):
        Ball.around(torch.ones(4), (4, 4), None)
    rows, columns = Ball.around(torch.ones(4, 1), (4, 4), None), Ball.around(torch.ones(1, 4), (4, 4), None)
    assert (rows.eps.each, columns.eps.each) == (True, False)
    assert Ball.around(radius(torch.ones(4), alike=True), (4, 4), None).eps.each is False


def test_a_sample_at_the_end_of_its_range_is_in_it_in_any_precision() -> None:
    fine = torch.rand(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    clip = value_range((fine.amin(0), fine.amax(0)))
    images = fine.float()
    require_inside(images, clip, "samples")
    ball = Ball.around(0.0, images.shape, clip)
    for points in (images, images.double()):
        lower, upper = ball.bounds(points)
        assert bool((lower <= points).all() and (points <= upper).all())


@pytest.mark.parametrize(
    ("values", "clip", "message"),
    [
        (255.0, PIXELS, "images / 255"),
        (-1.0, PIXELS, "clip=None for no limits"),
        (3.0, (0.0, 2.0), "number 0"),
        (math.nan, None, "NaN"),
        (math.inf, (0.0, 2.0), "NaN or infinity"),
    ],
)
def test_samples_outside_their_range(values: float, clip, message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        require_inside(torch.full((2, 3), values), clip, "samples")
