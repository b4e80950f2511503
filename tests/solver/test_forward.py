"""Functions of the inputs below and above every value: true at points, exact where nothing is relaxed, mutations red."""

from collections.abc import Callable

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.model.activations import KNOWN
from lingraft.solver import box_bounds, forward, products
from lingraft.solver.box_bounds import BoxBounds
from lingraft.solver.network import Network
from lingraft.solver.products import Planes
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes

SEEDS = st.integers(0, 10**6)
#: What evaluating a function at a point may round, as a share of its size.
ROUNDING = 1e-12


class Quotient(nn.Module):
    """Products, one of them by a factor that does not move, and a quotient, after a layer of ReLUs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4).double(), nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).relu().split(2, dim=1)
        return self.last(torch.cat([a * b, b / (1.5 + a), x[:, :2] * (x[:, 2:] * 0 + 3.0)], 1))


def _check(network: Network, region: Region, seed: int) -> None:
    """All functions at points of two boxes: the region, and a corner of it."""
    middle = (region.lower + region.upper) / 2
    lower, upper = torch.stack([region.lower, middle]), torch.stack([region.upper, region.upper])
    ends = (network.inside(t).flatten(1) for t in (lower, upper))
    bounds = BoxBounds(network, *ends, Sizes(network))
    found = forward.Forward(network, bounds.found.center, bounds.found.radius)
    for b in range(2):
        points = nets.points(Region(lower[b], upper[b]), seed, 30)
        with torch.no_grad():
            values = network.values(points)
        t = (network.inside(points) - bounds.found.center[b]) / bounds.found.radius[b].clamp(min=1e-300)
        terms = torch.cat([torch.ones(len(t), 1).double(), t.flatten(1)[:, found.moving]], 1)
        found.passed, found.pairs = 0, {}
        for i in range(len(network.nodes)):
            found.pass_to(i, bounds.found.lines, bounds.planes)
            if i not in found.pairs:  # only there for the squares of a product
                continue
            low, high = (torch.tensordot(terms, end[b], 1) for end in found.pairs[i])
            slack = ROUNDING * (1 + torch.stack([end[b].abs().sum(0) for end in found.pairs[i]]).amax(0))
            assert bool((low - slack <= values[i]).all())
            assert bool((values[i] <= high + slack).all())
            least, most = (end[b] for end in found.bounds(i))
            assert bool((least <= low + slack).all())
            assert bool((high - slack <= most).all())


@settings(max_examples=15, deadline=None)
@given(
    seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), eps=st.floats(0, 0.5), graft=st.booleans()
)
def test_values_of_every_operation_lie_between(seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, None, kind, small=True)
    model = nets.grafted(model, shape, seed) if graft else model
    _check(Network.from_module(model, shape), nets.box(shape, seed, eps), seed)


@pytest.mark.parametrize("name", sorted(name for name, record in KNOWN.items() if record.modules))
def test_values_of_every_activation_lie_between(name: str) -> None:
    torch.manual_seed(sorted(KNOWN).index(name))
    layers = [nn.Linear(3, 5), KNOWN[name].module(), nn.Linear(5, 4), KNOWN[name].module(), nn.Linear(4, 3)]
    _check(Network.from_module(nn.Sequential(*layers).double().eval(), (3,)), nets.box((3,), 1, 1.5), 2)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, eps=st.floats(0, 2))
def test_values_of_products_and_quotients_lie_between(seed: int, eps: float) -> None:
    torch.manual_seed(seed)
    _check(Network.from_module(Quotient().eval(), (3,)), nets.box((3,), seed, eps), seed)


def test_linear_networks_are_exact() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 5), nn.Linear(5, 3)).double().eval()
    network, region = Network.from_module(model, (3,)), nets.box((3,), 3, 0.7)
    bounds = BoxBounds(network, region.lower[None], region.upper[None], Sizes(network))
    last = len(network.nodes) - 1
    bounds.forward.pass_to(last, bounds.found.lines, bounds.planes)
    low, high = bounds.forward.bounds(last)
    every, none = torch.eye(3).double(), torch.zeros(3).double()
    torch.testing.assert_close(low[0], bounds.functions(last, every, none)[0][0])
    torch.testing.assert_close(high[0], -bounds.functions(last, -every, none)[0][0])


def test_forms_bound_the_neurons_of_boxes_where_rows_are_dear() -> None:
    model, shape = nets.vector(5, "relu", hidden=(6, 5, 5))
    network, region = Network.from_module(model, shape), nets.box(shape, 5, 0.4)
    ends = region.lower[None], region.upper[None]
    by_rows, by_forms = (BoxBounds(network, *ends, Sizes(network), dearer=d) for d in (torch.inf, 0.0))
    assert by_rows.forward.passed == 0
    assert by_forms.forward.passed > 0
    points = nets.points(region, 5, 200)
    values = network.values(points)
    for i in network.sites:
        low, high = by_forms.found.bounds[i]
        z = values[network.nodes[i].inputs[0]]
        assert bool(((low - 1e-9 <= z) & (z <= high + 1e-9)).all())
    harm = by_forms.harm(len(network.nodes) - 1, nets.margins(0)[:1], torch.tensor([0]))
    assert float(harm.max()) > 0


def test_nothing_is_lost_where_one_factor_is_fixed() -> None:
    product = Network.from_module(_Gated().double().eval(), (2,))
    corner = torch.tensor([[-3.0, 2.0]]).double(), torch.tensor([[5.0, 2.0]]).double()
    exact = BoxBounds(product, *corner, Sizes(product))
    low, _, _ = exact.functions(len(product.nodes) - 1, torch.ones(1, 1).double(), torch.zeros(1).double())
    assert float(low) == pytest.approx(-6.0, abs=1e-9)


class _Gated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] * x[:, 1:]


def _other_planes(change: Callable[[Planes], Planes]) -> Callable[..., Planes]:
    return lambda a, b: change(products.planes(a, b))


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "sides of a weight": lambda patch: patch.setattr(
        forward, "_weighted", lambda weight, pair: (weight[:, None] * pair[0], weight[:, None] * pair[1])
    ),
    "no half distance": lambda patch: patch.setattr(nn.functional, "linear", _only_middle),
    "gap of a product": lambda patch: patch.setattr(
        box_bounds, "planes", _other_planes(lambda p: p._replace(gap=p.gap / 2))
    ),
    "constant of a product": lambda patch: patch.setattr(
        box_bounds, "planes", _other_planes(lambda p: p._replace(constant=-p.constant))
    ),
    "factors of a product": lambda patch: patch.setattr(
        box_bounds, "planes", _other_planes(lambda p: p._replace(of_first=p.of_second, of_second=p.of_first))
    ),
}


def _only_middle(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Interval arithmetic and forms whose radius is nothing: `spread` is the call without a bias."""
    return torch.nn.functional.relu(x @ weight.T) * 0 if bias is None else x @ weight.T + bias


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    network, region = Network.from_module(Quotient().eval(), (3,)), nets.box((3,), 1, 1.0)
    _check(network, region, 1)
    MUTATIONS[name](monkeypatch)
    with pytest.raises(AssertionError):
        _check(network, region, 1)


def test_known_inputs_have_no_coefficients_but_their_width_counts() -> None:
    """The last inputs of a network may be declared known: then their width is in the constants."""
    torch.manual_seed(5)
    network = Network.from_module(nn.Linear(3, 4).double().eval(), (3,))
    network.nodes[0].known = 2  # type: ignore[attr-defined]
    found = forward.Forward(network, torch.zeros(1, 3).double(), torch.tensor([[0.5, 0.25, 0.125]]).double())
    assert found.moving.tolist() == [0]
    found.pass_to(1, {}, {})
    low, high = found.bounds(1)
    points = torch.cartesian_prod(*(torch.tensor([-w, w]).double() for w in (0.5, 0.25, 0.125)))
    values = network.forward(points)
    torch.testing.assert_close(low[0], values.amin(0), rtol=0, atol=1e-9)
    torch.testing.assert_close(high[0], values.amax(0), rtol=0, atol=1e-9)
    assert bool((low[0] <= values.amin(0)).all() and (high[0] >= values.amax(0)).all())
