"""The small box of SABR: where it lies, and that its loss lies between that of the attack and that of the ball."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.attack import pgd
from lingraft.attack.ball import bounds
from lingraft.ball import Ball
from lingraft.training import loss_at
from lingraft.training.certified import CertifiedLoss, SmallBoxTraining
from lingraft.training.differentiable import Interval
from lingraft.training.ramp import Ramp
from lingraft.training.small_box import SmallBox, small_box


def random_net(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return model.double(), torch.rand(5, 6).double(), torch.randint(3, (5,))


def value_of(loss: CertifiedLoss, net: tuple[nn.Module, Tensor, Tensor], seed: int = 3) -> float:
    return float(loss(*net, torch.Generator().manual_seed(seed))[0].detach())


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 2), st.floats(0, 1)), min_size=1, max_size=5),
    st.floats(0.001, 1),
)
def test_the_box_lies_inside_has_its_share_of_the_width_and_holds_the_point(
    coordinates: list[tuple[float, float, float]], share: float
) -> None:
    lower = torch.tensor([low for low, _, _ in coordinates], dtype=torch.float64)
    upper = torch.tensor([low + width for low, width, _ in coordinates], dtype=torch.float64)
    part = torch.tensor([part for _, _, part in coordinates], dtype=torch.float64)
    point = torch.minimum(lower + part * (upper - lower), upper)
    found = small_box(point, Interval(lower, upper), share)
    assert (lower <= found.lower).all()
    assert (found.upper <= upper).all()
    slack = 1e-14
    torch.testing.assert_close(found.upper - found.lower, share * (upper - lower), rtol=0, atol=slack)
    assert (found.lower <= point + slack).all()
    assert (point <= found.upper + slack).all()


@pytest.mark.parametrize("clip", [(0.0, 1.0), (0.2, 0.7), None])
def test_the_box_of_an_attack_is_in_the_ball_and_the_range_of_values(clip: tuple[float, float] | None) -> None:
    model, images, labels = random_net(0)
    images = images.clamp(*clip) if clip else images
    ball = Ball(0.3, clip)
    lower, upper = SmallBox(0.3, 2).around(model, images, labels, ball, torch.Generator().manual_seed(1))
    low, high = ball.bounds(images)
    assert (low <= lower).all()
    assert (lower <= upper).all()
    assert (upper <= high).all()
    assert float((upper - lower).max()) == pytest.approx(0.3 * float((high - low).max()))


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_lies_between_that_of_the_attack_and_that_of_the_ball(seed: int) -> None:
    net = random_net(seed)
    model, images, labels = net
    eps = 0.1
    attacked = pgd(model, images, labels, eps, torch.Generator().manual_seed(3), 4)
    values = [float(F.cross_entropy(model(attacked), labels).detach())]
    values += [value_of(CertifiedLoss(eps, small_box=SmallBox(share, 4)), net) for share in (0.01, 0.1, 0.5, 0.9)]
    values += [value_of(CertifiedLoss(eps), net)]
    assert values == sorted(values)
    assert values[0] < values[2] < values[-1]


def test_at_the_ends_it_is_the_attack_and_ibp() -> None:
    net = random_net(7)
    model, images, labels = net
    attacked = pgd(model, images, labels, 0.1, torch.Generator().manual_seed(3), 2)
    here = float(F.cross_entropy(model(attacked), labels).detach())
    assert value_of(CertifiedLoss(0.1, small_box=SmallBox(1e-9, 2)), net) == pytest.approx(here)
    whole = value_of(CertifiedLoss(0.1), net)
    assert value_of(CertifiedLoss(0.1, small_box=SmallBox(1.0, 2)), net) == pytest.approx(whole)
    box = small_box(attacked, Interval(*bounds(images, 0.1)), 1.0)
    torch.testing.assert_close(box, Interval(*bounds(images, 0.1)))
    # the schedule, too: share 1 and nothing attacked is IBP
    assert loss_at(SmallBoxTraining(0.1, Ramp(1, 2), 1.0), math.inf) == CertifiedLoss(Ball.of(0.1))
