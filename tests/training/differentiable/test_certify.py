"""What intervals certify."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lingraft import LingraftError
from lingraft.attack.evaluation import Attack, correct, robust
from lingraft.data import ImageSet, load
from lingraft.training.certified import CertifiedLoss
from lingraft.training.differentiable import Interval, graph_of, interval_bounds, margin_intervals
from lingraft.training.differentiable.certify import certified_by_intervals
from lingraft.training.differentiable.comparison import in_float64, require_agreement
from lingraft.work.verify import verify


@pytest.mark.slow
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


class Odd(nn.Module):
    """A model whose forward pass, seen by torch.fx or taken by name, is easily mistaken for another."""

    def __init__(self, way: str):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.calls, self.first, self.last = way, 0, nn.Linear(4, 4), nn.Linear(4, 3)
        if way == "hook":
            self.first.register_forward_hook(lambda module, inputs, output: 3 * output)
        if way == "hook-of-the-model":
            self.register_forward_hook(lambda module, inputs, output: -output)
        if way == "forward":
            self.first.forward = lambda x: -x  # type: ignore[method-assign]

    def forward(self, x: Tensor) -> Tensor:
        x = torch.flatten(x, 1)
        way = getattr(self, f"_{self.way}".replace("-", "_"), None)
        return self.last(torch.relu(self.first(x)) if way is None else way(x))

    def _data(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x).data)

    def _real(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x).real)

    def _turned(self, x: Tensor) -> Tensor:
        return torch.relu(torch.flatten(self.first(x).view(-1, 2, 2).mT, 1))

    def _view(self, x: Tensor) -> Tensor:
        x = self.first(x)
        torch.relu_(x.view(-1, 2, 2))
        return -x

    def _alias(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = x
        y += 1.0
        return torch.relu(x)

    def _cast(self, x: Tensor) -> Tensor:
        return torch.sum(torch.relu(self.first(x)).view(-1, 4, 1), 2, dtype=torch.int32).to(x.dtype)

    def _old_sum(self, x: Tensor) -> Tensor:
        return torch.add(self.first(x), -1, torch.relu(self.first(x)))  # type: ignore[call-overload]

    def _batch(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return x - x.mean(0, keepdim=True)

    def _counted(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.relu(self.first(x)) * (1 if self.calls < 100 else -1)


WAYS = [
    "data", "real", "turned", "view", "cast", "hook", "hook-of-the-model", "forward", "old-sum", "batch",
    "counted",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_known_or_not_seen_is_refused(way: str) -> None:
    """At the scale of ordinary networks, with many images that one or the other function would be certified on."""
    model = Odd(way).eval()
    images = torch.rand(40, 1, 2, 2)
    with torch.no_grad():
        labels = model(images.clone()).argmax(1)
    with pytest.raises(LingraftError):
        certified_by_intervals(model, ImageSet(images, labels), 0.01)


def test_changes_under_another_name_are_bounded_as_they_are() -> None:
    """x under another name is changed: relu(x) is that of the changed x."""
    model, plain = Odd("alias").eval(), Odd("plain").eval()
    plain.first.bias.data += 1.0
    data = ImageSet(torch.rand(40, 1, 2, 2), torch.arange(40) % 3)
    with torch.no_grad():
        torch.testing.assert_close(model(data.pixels()), plain(data.pixels()))
    certified = [certified_by_intervals(net, data, 0.01) for net in (model, plain)]
    assert certified[0].any()
    assert torch.equal(*certified)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 2, 2, 0, 1, False, False),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: torch.cat([x, x], 1)[:, 1:],
        lambda x: torch.cat((x, x), 1)[:, :1],
    ],
)
def test_functions_are_bounded_however_they_are_called(pool: Callable[[Tensor], Tensor]) -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.LazyLinear(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.flatten(pool(x), 1))

    model, images = Functional().eval(), torch.rand(5, 1, 4, 4)
    labels = model(images).argmax(1)
    assert certified_by_intervals(model, ImageSet(images, labels), 0.0).all()


def test_the_logits_of_a_single_image_may_not_depend_on_a_batch_either() -> None:
    with pytest.raises(LingraftError, match="images of a batch"):
        certified_by_intervals(Odd("batch").eval(), ImageSet(torch.rand(1, 1, 2, 2), torch.tensor([0])), 0.0)


def test_nothing_is_certified_that_the_model_itself_gets_wrong() -> None:
    """2²⁴ + 1 is 2²⁴ in float32, in which the model computes: its logits are −1/2 and 0 everywhere."""

    class Rounding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.flatten(x, 1)
            return torch.cat([x * 16777217.0 - x * 16777216.0 - 0.5, 0.0 * x], 1)

    data = ImageSet(torch.full((2, 1, 1, 1), 0.9), torch.tensor([0, 1]))
    assert correct(Rounding(), data).tolist() == [False, True]
    assert not certified_by_intervals(Rounding(), data, 0.0)[0]


@pytest.mark.parametrize("way", WAYS)
def test_certified_training_is_refused_when_it_begins(way: str) -> None:
    images, labels = torch.rand(6, 1, 2, 2), torch.arange(6) % 3
    with pytest.raises(LingraftError):
        CertifiedLoss(0.01)(Odd(way), images, labels, torch.Generator())


def test_bounds_that_the_model_contradicts_are_refused() -> None:
    own, exact = in_float64(Odd("plain"), "cpu")
    images, labels = torch.rand(5, 1, 2, 2).double(), torch.zeros(5, dtype=torch.long)
    box = Interval(images - 0.1, images + 0.1)
    graph = graph_of(exact)
    margins = margin_intervals(graph, interval_bounds(graph, *box).last, labels)
    with torch.no_grad():
        require_agreement(own, exact, graph, box, labels, margins)
        for wrong in (Interval(margins.lower + 1.0, margins.upper), Interval(margins.lower, margins.upper - 1.0)):
            with pytest.raises(LingraftError, match="do not hold"):
                require_agreement(own, exact, graph, box, labels, wrong)
        with pytest.raises(LingraftError, match="do not hold"):
            require_agreement(Odd("hook").eval(), exact, graph, box, labels, margins)


def test_division_by_zero_and_by_whole_numbers() -> None:
    """The quotient is computed as the model does it: a reciprocal of whole numbers would have float32's precision."""

    class Divided(nn.Module):
        def __init__(self, by: Tensor | int):
            super().__init__()
            self.by, self.last = by, nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.flatten(x, 1) / self.by)

    data = ImageSet(torch.rand(3, 1, 2, 2), torch.arange(3))
    assert not certified_by_intervals(Divided(0), data, 0.0).any()
    graph = graph_of(Divided(torch.tensor([3])).double())
    image = torch.tensor([0.3, 0.5, 0.7, 0.9], dtype=torch.float64).view(1, 1, 2, 2)
    last = interval_bounds(graph, image, image, rounded=True).last
    assert float((last.upper - last.lower).max()) < 1e-14
    assert ((last.lower <= image.view(1, 4) / 3) & (image.view(1, 4) / 3 <= last.upper)).all()


def test_a_model_that_overflows_is_certified_nowhere() -> None:
    """Training may have gone wrong: that is no proof, and no reason to stop."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    for value in (float("nan"), 1e308):
        model[1].weight.data.fill_(value)
        assert not certified_by_intervals(model, ImageSet(torch.ones(3, 1, 2, 2), torch.arange(3)), 0.1).any()


def test_rounding_of_long_sums_certifies_nothing() -> None:
    """131,200 terms whose sum is exactly −6e-6; in float64 it comes out above 1e-5 for some of the small terms."""
    half, weight = 65_600, 1024.0
    for power in range(-30, -24):
        image = torch.cat([torch.ones(half), torch.full((half,), 0.75 * 2.0**power / weight)])
        model = nn.Sequential(nn.Flatten(), nn.Linear(2 * half, 2)).double()
        with torch.no_grad():
            model[1].weight.copy_(torch.tensor([[weight], [0.0]]).expand(2, 2 * half))
            exact = Fraction(weight) * half * (1 + Fraction(float(image[-1])))
            model[1].bias.copy_(torch.tensor([-float(exact) - 6e-6, 0.0], dtype=torch.float64))
        data = ImageSet(image.view(1, 1, 2, half), torch.tensor([0]))
        assert not certified_by_intervals(model, data, 0.0).any()
