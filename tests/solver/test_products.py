"""Products of two values: the same function for every region, and bounds as tight as they can be on each."""

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver import verifier
from lingraft.solver.bounds import bound_sites, margin_crown
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.network import Network
from lingraft.solver.nodes import Product
from lingraft.solver.products import balanced
from lingraft.solver.region import Region


class Times(nn.Module):
    """A product of two halves of the input, and one of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        square = x.view(-1, 2, 2)
        return self.last(torch.cat([x[:, :2] * x[:, 2:], (square @ square.transpose(1, 2))[:, 0]], 1))


class Crossed(nn.Module):
    """Products of linear functions of the same two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 8, dtype=torch.float64), nn.Linear(4, 1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.first(x).chunk(2, 1)
        return self.last(left * right)


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    return Network.from_module(Times().eval(), (4,))


def bounds(network: Network, region: Region) -> tuple[Tensor, Tensor]:
    """Of the outputs, by CROWN."""
    found = bound_sites(network, region, Budget())
    rows = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    low = margin_crown(network, found, rows, torch.zeros(6).double())
    return low[:3], -low[3:]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=4, max_size=4), st.lists(st.floats(0, 5), min_size=4, max_size=4))
def test_the_same_function_with_bounds_that_hold(network: Network, center: list[float], radius: list[float]) -> None:
    middle, half = torch.tensor(center).double(), torch.tensor(radius).double()
    region = Region(middle - half, middle + half)
    points = (middle + half * (2 * torch.rand(200, 4).double() - 1)).clamp(region.lower, region.upper)
    other = balanced(network, region)
    values, size = network.forward(points), 1 + float(middle.abs().max() + half.max()) ** 2
    assert float((other.forward(points) - values).abs().max()) < 1e-12 * size
    # and with the squares, which the bounds are made of
    computed: list[Tensor] = []
    for node in other.nodes:
        computed.append(node.forward(*(computed[i] for i in node.inputs)) if computed else points)
    assert float((computed[-1] - values).abs().max()) < 1e-12 * size
    low, high = bounds(other, region)
    assert bool(((values >= low - 1e-9 * size) & (values <= high + 1e-9 * size)).all())


def test_nothing_is_lost_where_one_factor_is_fixed() -> None:
    class Gated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :1] * x[:, 1:]

    network = Network.from_module(Gated().double().eval(), (2,))
    region = Region(torch.tensor([-3.0, 2.0]).double(), torch.tensor([5.0, 2.0]).double())
    found = bound_sites(balanced(network, region), region, Budget())
    one = torch.ones(1, 1).double()
    low = margin_crown(balanced(network, region), found, one, torch.zeros(1).double())
    assert float(low) == pytest.approx(-6.0, abs=1e-4)
    loose = margin_crown(network, bound_sites(network, region, Budget()), one, torch.zeros(1).double())
    assert float(loose) < -6.2


def test_as_tight_in_the_middle_as_mccormick() -> None:
    """With radii 8 and ½, a·b leaves 4 above and below its tangent."""

    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :1] * x[:, 1:]

    network = Network.from_module(Plain().double().eval(), (2,))
    region = Region(torch.tensor([-8.0, -0.5]).double(), torch.tensor([8.0, 0.5]).double())
    other = balanced(network, region)
    low = margin_crown(other, bound_sites(other, region, Budget()), torch.ones(1, 1).double(), torch.zeros(1).double())
    assert float(low) == pytest.approx(-4.0, abs=1e-6)


@pytest.mark.parametrize("large", [1.0, 1e3, 1e6, 1e-6])
def test_as_tight_whatever_the_units(large: float) -> None:
    """As of the shares of a sum: factors of 1e5 times ones of 1e-6."""

    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (large * x[:, :1]) * (x[:, 1:] / large)

    network = Network.from_module(Plain().double().eval(), (2,))
    region = Region(torch.tensor([-8.0, -0.5]).double(), torch.tensor([8.0, 0.5]).double())
    other = balanced(network, region)
    low = margin_crown(other, bound_sites(other, region, Budget()), torch.ones(1, 1).double(), torch.zeros(1).double())
    assert -4.5 <= float(low) <= -4.0 + 1e-6


def test_values_that_are_0_do_not_make_rounding_large() -> None:
    """The scale of one product is not so large that what others of its node lose to rounding becomes visible."""

    class Gated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x - 2) * x.flip(1)

    network = Network.from_module(Gated().double().eval(), (2,))
    region = Region(torch.tensor([-1.0, 1e4]).double(), torch.tensor([1.0, 2e4]).double())
    other = balanced(network, region)
    assert max(bound_sites(other, region, Budget()).losses) < 1e-3


def test_a_network_without_products_stays_as_it_is() -> None:
    network = Network.from_module(nn.Sequential(nn.Linear(2, 3), nn.ReLU()).eval(), (2,))
    assert balanced(network, Region(torch.zeros(2), torch.ones(2))) is network
    assert not any(isinstance(node, Product) for node in network.nodes)


def test_infinite_bounds_leave_it_as_it_is() -> None:
    class Unbounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / (x - 0.1)

    network = Network.from_module(Unbounded().double().eval(), (2,))
    region = Region(torch.zeros(2).double(), torch.ones(2).double())
    for node in balanced(network, region).nodes:
        for value in vars(node).values():
            assert not isinstance(value, Tensor) or bool(torch.isfinite(value).all())


def test_where_products_bend_the_search_over_neurons_has_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would meet the same relaxed products again; the search over the input goes on with all the time there is."""
    torch.manual_seed(0)
    model, region = Crossed().eval(), Region(torch.full((2,), -1.0).double(), torch.full((2,), 1.0).double())
    spec, turns = torch.ones(1, 1).double(), []
    ticks = torch.linspace(-1, 1, 400).double()
    with torch.no_grad():
        least = model(torch.cartesian_prod(ticks, ticks)).min()

    def out_of_time(*args: object) -> None:
        turns.append(args)
        raise Exhausted("time")

    monkeypatch.setattr(verifier._Attempt, "_branch", out_of_time)
    monkeypatch.setattr(verifier, "FIRST_TURN", 1e-3)
    result = nets.verify(model, region, spec, (1e-2 - least)[None])
    assert (result.verdict, result.stage, len(turns)) == ("verified", "boxes", 1)
