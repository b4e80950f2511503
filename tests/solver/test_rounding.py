"""No proof from arithmetic alone: weights of any scale, sums that cancel, minima at 0, boxes between two float32 numbers."""

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lingraft
from lingraft.solver.bounds import bound_sites, margin_crown, margin_intervals
from lingraft.solver.budget import Budget
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.rounding import Loss, allowance


def _scaled(model: nn.Sequential, power: int) -> nn.Sequential:
    """All weights times 2^power, with biases that leave the network the same but for the scale of its logits."""
    scale = 1.0
    for layer in model:
        if isinstance(layer, nn.Linear):
            scale *= 2.0**power
            layer.weight.data *= 2.0**power
            layer.bias.data *= scale
    return model


def _problem(seed: int, share: float) -> tuple[Region, Tensor, Tensor]:
    """A constraint whose exact minimum is that share of the way from 0 to its value at the center."""
    model, shape = nets.vector(seed, hidden=(4, 3))
    region, spec = nets.box(shape, seed, 0.5), nets.margins(seed % 3)[:1]
    exact = Oracle(model, region)
    lowest = exact.minimum(exact.margin(spec[0])).value
    with torch.no_grad():
        center = float((model(((region.lower + region.upper) / 2)[None]) @ spec.t())[0, 0])
    return region, spec, torch.tensor([share * (center - lowest) - lowest], dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("power", [-2, 3, 12])
def test_powers_of_two_change_no_verdict(power: int) -> None:
    verdicts: Counter[str] = Counter()
    for seed in range(6):
        for share in (0.05, -0.05):
            region, spec, offset = _problem(seed, share)
            model, _ = nets.vector(seed, hidden=(4, 3))
            result = nets.verify(_scaled(model, power), region, spec, offset * 2.0 ** (3 * power))
            assert result.verdict == ("verified" if share > 0 else "falsified"), (seed, share, result)
            verdicts[result.verdict] += 1
    assert verdicts == {"verified": 6, "falsified": 6}


@pytest.mark.slow
@pytest.mark.parametrize("power", [30, 60, 110, 200, 330])
def test_huge_weights_are_never_verified_wrongly(power: int) -> None:
    """Float32 overflows from 2^43 on, solvers lose their footing before that; "unknown: numerical" is a fair answer."""
    wrong = 0
    for seed in range(4):
        region, spec, offset = _problem(seed, -0.05)
        model, _ = nets.vector(seed, hidden=(4, 3))
        result = nets.verify(_scaled(model, power), region, spec, offset * 2.0 ** (3 * power))
        assert result.verdict != "verified", result
        assert result.reason in (None, "numerical"), result
        wrong += result.verdict in ("falsified", "misclassified")
    assert wrong or power > 30


def _cancelling(seed: int, size: float) -> tuple[nn.Sequential, Fraction]:
    """Logits (Σ wᵢ·hᵢ(x) − k, 0) with stable hᵢ of that size and the minimum at x = 0: what is left of k, exactly."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(size * torch.rand(6, 2, generator=generator))
        model[0].bias.copy_(size * (1 + torch.rand(6, generator=generator, dtype=torch.float64)))
        model[2].weight.copy_(torch.stack([torch.rand(6, generator=generator, dtype=torch.float64), torch.zeros(6)]))
        terms = zip(model[2].weight[0].tolist(), model[0].bias.tolist(), strict=True)
        total = sum((Fraction(w) * Fraction(b) for w, b in terms), Fraction(0))
        bias = math.nextafter(-float(total), -math.inf)
        model[2].bias.copy_(torch.tensor([bias, 0.0], dtype=torch.float64))
    return model, total + Fraction(bias)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", range(8, 18))
def test_sums_that_cancel(exponent: int) -> None:
    """The exact minimum is below 0 by less than float64 resolves: its sums may come out above 0, but prove nothing."""
    region = Region(torch.zeros(2).double(), torch.ones(2).double())
    for seed in range(25):
        model, minimum = _cancelling(100 * exponent + seed, 10.0**exponent)
        assert minimum < 0
        assert nets.verify(model, region, nets.margins(0, 2)).verdict != "verified"


def _amplified(seed: int, size: float, factor: float, shared: bool) -> tuple[nn.Sequential, Fraction]:
    """Logits (factor·z, 0), where z is about 1 and a sum of terms of that size; its minimum, at x = 0, exactly.

    If `shared`, what depends on x cancels in z, which intervals do not see and CROWN does.
    """
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1), nn.ReLU(), nn.Linear(1, 2)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(some(3, 2).repeat(2, 1) if shared else 1e-3 * some(6, 2))
        model[0].bias.copy_(size * (1 + some(6)))
        weight = some(1, 3)
        model[2].weight.copy_(torch.cat([weight, -weight if shared else some(1, 3)], 1))
        terms = zip(model[2].weight[0].tolist(), model[0].bias.tolist(), strict=True)
        total = sum((Fraction(w) * Fraction(b) for w, b in terms), Fraction(0))
        bias = float(1 - total)
        model[2].bias.fill_(bias)
        model[4].weight.copy_(torch.tensor([[factor], [0.0]]))
        model[4].bias.zero_()
    return model, Fraction(factor) * (total + Fraction(bias))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("size", "factor"), [(1e5, 1e5), (1e6, 1e6), (1e8, 1e4)])
def test_sums_that_cancel_before_a_large_factor(size: float, factor: float, shared: bool) -> None:
    """What is rounded away where terms cancel is small beside them, but not behind the factor."""
    region = Region(torch.zeros(2).double(), torch.ones(2).double())
    spec, offset = nets.margins(0, 2), torch.zeros(1).double()
    too_large = 0
    for seed in range(20):
        model, minimum = _amplified(seed, size, factor, shared)
        network = Network.from_module(model, (2,))
        for method in ("intervals", "crown"):
            found = bound_sites(network, region, Budget(), method)
            loss = Loss(found.losses)
            crown = margin_crown(network, found, spec, offset, loss)
            too_large += Fraction(float(crown)) > minimum
            bound = margin_intervals(found, spec, offset) if method == "intervals" else crown - loss.total
            certain = float(bound - allowance(found.losses, found.sizes[-1], spec, offset))
            assert Fraction(certain) <= minimum
            assert minimum - Fraction(certain) < 2000 * size * factor * 2.0**-53 or (shared and method == "intervals")
    assert too_large, "nothing was rounded up, so nothing was tested"


def _long_sum(terms: int, weight: float, power: int, as_map: bool) -> tuple[nn.Sequential, Tensor, Fraction]:
    """Logits (Σ weight·xᵢ + bias, 0), an image, and what the first is there, exactly: −6e-6.

    Half of the terms are `weight`; the others are three quarters of 2^power. Where that is the distance of numbers as
    large as the sum, or as a part of it that is summed apart, each addition rounds up.
    """
    half, small = terms // 2, 0.75 * 2.0**power / weight
    image = torch.cat([torch.ones(half), torch.full((terms - half,), small)]).double()
    layer: Any = nn.Conv2d(1, 2, (1, terms)) if as_map else nn.Linear(terms, 2)
    model = nn.Sequential(layer, nn.Flatten()).double().eval()
    exact = Fraction(weight) * half + Fraction(weight) * Fraction(small) * (terms - half)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0] = weight
        layer.bias.zero_()
        layer.bias[0] = -float(exact) - 6e-6
        bias = Fraction(float(layer.bias[0].detach()))
    return model, image.view(1, 1, terms) if as_map else image, exact + bias


def _certain(model: nn.Module, region: Region, method: str, spec: Tensor) -> tuple[float, float]:
    """The lowest that the margin may be: as computed, and less what is allowed for rounding."""
    network, offset = Network.from_module(model, region.lower.shape), torch.zeros(1).double()
    found = bound_sites(network, region, Budget(), method)
    loss = Loss(found.losses)
    plain = float(network.forward(region.lower[None]) @ spec[0])
    crown = margin_crown(network, found, spec, offset, loss) - loss.total
    bound = margin_intervals(found, spec, offset) if method == "intervals" else crown
    return plain, float(bound - allowance(found.losses, found.sizes[-1], spec, offset))


@pytest.mark.parametrize("as_map", [False, True])
def test_sums_of_many_terms(as_map: bool) -> None:
    """What 131,200 additions round away is far more than any one of them does."""
    worst, most = 0.0, 131_200 * 2.0**-53 * (131_200 * 1024.0)
    for power in range(-30, -24):
        model, image, exact = _long_sum(131_200, 1024.0, power, as_map)
        for method in ("intervals", "crown"):
            plain, certain = _certain(model, Region(image, image), method, nets.margins(0, 2))
            assert Fraction(certain) <= exact
            # twice γ, for both logits, at the image, the layer, its flattening and the margin: not much more than that
            assert float(exact) - certain < 20 * most, "no more is taken off than so many additions may lose"
        worst = max(worst, plain - float(exact))
    assert worst > 1e-5 or as_map, "nothing was rounded up, so nothing was tested"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3000), st.integers(-10, 20), st.sampled_from(["intervals", "crown"]))
def test_sums_of_any_length_and_scale(seed: int, terms: int, power: int, method: str) -> None:
    """Two layers of exactly known numbers on one image: what is proven of their margin is no more than it is."""
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    model = nn.Sequential(nn.Linear(terms, 3), nn.ReLU(), nn.Linear(3, 2)).double().eval()
    first, last = model[0], model[2]
    image = some(terms) * 2.0 ** torch.randint(-8, 8, (terms,), generator=generator)
    with torch.no_grad():
        first.weight.copy_(some(3, terms) * 2.0**power)
        first.bias.copy_(some(3) - first.weight @ image)  # what is left of the sums is small beside their terms
        last.weight.copy_(some(2, 3) * 2.0**power)
        last.bias.copy_(some(2))
    x = [Fraction(v) for v in image.tolist()]
    hidden = [
        max(sum((Fraction(w) * v for w, v in zip(row, x, strict=True)), Fraction(b)), Fraction(0))
        for row, b in zip(first.weight.tolist(), first.bias.tolist(), strict=True)
    ]
    logits = [
        sum((Fraction(w) * h for w, h in zip(row, hidden, strict=True)), Fraction(b))
        for row, b in zip(last.weight.tolist(), last.bias.tolist(), strict=True)
    ]
    _, certain = _certain(model, Region(image, image), method, nets.margins(0, 2))
    assert Fraction(certain) <= logits[0] - logits[1]


def test_the_allowance_for_an_ordinary_network_is_small() -> None:
    """Around 1e-9 of what the logits are made of: far below the margin that a proof must have."""
    model, shape = nets.conv(3, None, "relu")
    region = nets.box(shape, 3, 0.05)
    network, spec = Network.from_module(model, shape), nets.margins(0, 3)
    found = bound_sites(network, region, Budget())
    loss, offset = Loss(found.losses), torch.zeros(len(spec)).double()
    margin_crown(network, found, spec, offset, loss)
    total = loss.total + allowance(found.losses, found.sizes[-1], spec, offset)
    assert float(total.max()) < 1e-9 * max(found.sizes)


def test_lines_whose_parts_cancel() -> None:
    """slope·z + intercept of a grafted neuron loses as much as its parts are large, and a factor makes it matter."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).double().eval()
    values = ([[1.0]], [0.0], [[1e6], [0.0]], [0.0, 0.0])
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data.copy_(torch.tensor(value))
    slope, intercept = 1e8 / 3, -1e8 / 7
    model = lingraft.graft(model, {"1": torch.ones(1, dtype=torch.bool)}, slope=slope, intercept=intercept)
    assert [end.item() for end in model.get_submodule("1").line()] == [slope, intercept]
    too_large = 0
    for seed in range(40):
        z = -intercept / slope * (1 + 1e-12 * float(torch.rand((), generator=torch.Generator().manual_seed(seed))))
        exact = 10**6 * (Fraction(slope) * Fraction(z) + Fraction(intercept))
        image = torch.tensor([z], dtype=torch.float64)
        plain, certain = _certain(model, Region(image, image), "intervals", nets.margins(0, 2))
        too_large += Fraction(plain) > exact
        assert Fraction(certain) <= exact
    assert too_large, "nothing was rounded up, so nothing was tested"


@pytest.mark.slow
def test_a_minimum_of_zero_is_not_verified() -> None:
    found: Counter[str] = Counter()
    for seed in range(8):
        region, spec, offset = _problem(seed, 0.0)
        model, _ = nets.vector(seed, hidden=(4, 3))
        result = nets.verify(model, region, spec, offset, double=seed % 2 == 0)
        assert result.verdict != "verified"
        found[str(result.reason)] += 1
    assert found["time"] == 0
    # and one that is 0 in every arithmetic: the logits (relu(x), 0)
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).double().eval()
    for parameter, values in zip(model.parameters(), ([[1.0]], [0.0], [[1.0], [0.0]], [0.0, 0.0]), strict=True):
        parameter.data.copy_(torch.tensor(values))
    for lower in (0.0, -1.0):
        region = Region(torch.tensor([lower]).double(), torch.ones(1).double())
        assert nets.verify(model, region, nets.margins(0, 2)).verdict != "verified"


def test_boxes_without_float32_images() -> None:
    """Proofs hold for the real numbers in the box; a witness would have to be a float32 image in it, so none is given."""
    verdicts: Counter[tuple[str, bool]] = Counter()
    for seed in range(8):
        model, shape = nets.vector(seed, hidden=(4, 3))
        lower = nets.box(shape, seed, 0.0).lower * 0.9 + 0.05 + 1e-10
        region = Region(lower, lower + 1e-11)
        assert bool((region.narrowed()[0] > region.narrowed()[1]).any())
        spec = nets.margins(seed % 3)[:1]
        exact = Oracle(model, region)
        lowest = exact.minimum(exact.margin(spec[0])).value
        for share in (0.01, -0.01):
            # the image is elsewhere and right, so that the verdict is about the box
            offset = torch.tensor([share - lowest]).double()
            with torch.no_grad():
                image = max(torch.rand(64, *shape).double(), key=lambda x: float(model(x[None])[0] @ spec[0]))
            result = nets.verify(model, region, spec, offset, image=image)
            assert result.verdict != "falsified"
            assert result.verdict != "verified" or share > 0
            verdicts[result.verdict, share > 0] += 1
    assert verdicts["verified", True] >= 6
    assert verdicts["verified", False] == 0


def test_witnesses_of_thin_boxes_lie_inside() -> None:
    """One float32 image in the box: the witness is that image, and the model itself confirms it."""
    model = nn.Sequential(nn.Linear(2, 2)).eval()  # logits (x, y)
    model[0].weight.data.copy_(torch.eye(2))
    model[0].bias.data.zero_()
    right = torch.tensor([[0.9, 0.1]])
    for seed in range(8):
        image = torch.rand(1, 2, generator=torch.Generator().manual_seed(seed)) / 2 + torch.tensor([[0.0, 0.5]])
        lower, upper = image.double() - 1e-9, image.double() + 1e-9
        (result,) = lingraft.verify(model, right, [0], lower=lower, upper=upper, workers=0)
        assert result.verdict == "falsified"
        assert torch.equal(result.witness, image[0])
        (result,) = lingraft.verify(model, image, [1], lower=lower, upper=upper, workers=0)
        assert result.verdict == "verified"
