"""Affine functions of the image and of taps: they are the network's values, within the error that they state."""

from fractions import Fraction

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver import affine
from lingraft.solver.affine import Affine, TooLarge, of_image, settled, spans, through, through_site
from lingraft.solver.bounds import SiteBounds, bound_sites
from lingraft.solver.budget import Budget
from lingraft.solver.network import Network
from lingraft.solver.nodes import Input, Site
from lingraft.solver.region import Region

SEEDS = st.integers(0, 10**6)
OPERATIONS = ["conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine", "move", "identity"]


def _unfolded(network: Network, found: SiteBounds) -> tuple[list[Affine], dict[int, Tensor]]:
    """All nodes as affine functions, and the flat indices of the taps of every site."""
    values: list[Affine] = []
    taps: dict[int, Tensor] = {}
    columns = found.center.numel()
    for i, node in enumerate(network.nodes):
        inputs = [values[j] for j in node.inputs]
        if isinstance(node, Input):
            values.append(of_image(found.center, found.radius))
        elif isinstance(node, Site):
            open_, lines = found.unstable(network, i), found.lines[i]
            taps[i] = open_.flatten().nonzero().flatten()
            slope, intercept = (torch.where(open_, 0.0, t) for t in lines[:2])
            size = node.activation.value(found.bounds[i][1]).abs().flatten()[taps[i]] + 1
            values.append(through_site(settled(inputs[0], node.shape), slope, intercept, taps[i], size, columns))
            columns += len(taps[i])
        else:
            values.append(through(node, inputs, [network.nodes[j].shape for j in node.inputs]))
    return [settled(x, node.shape) for x, node in zip(values, network.nodes, strict=True)], taps


def _symbols(network: Network, found: SiteBounds, taps: dict[int, Tensor], points: Tensor) -> Tensor:
    """d and h (columns, N) at these points."""
    values = network.values(points)
    parts = [values[0].flatten(1) - found.center.flatten()]
    return torch.cat([*parts, *[values[i].flatten(1)[:, index] for i, index in taps.items()]], dim=1).t()


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid"]), eps=st.floats(0, 0.5), graft=st.booleans())
def test_they_are_the_values_of_every_node(operation: str, seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, operation, kind)
    model = nets.grafted(model, shape, seed) if graft else model
    network, region = Network.from_module(model, shape), nets.box(shape, seed, eps)
    found = bound_sites(network, region, Budget())
    values, taps = _unfolded(network, found)
    points = nets.points(region, seed, 8)
    symbols = _symbols(network, found, taps, points)
    for x, value in zip(values, network.values(points), strict=True):
        given = torch.zeros(x.places, x.weights.shape[1], len(points), dtype=torch.float64)
        given.index_add_(0, x.place, x.weights[:, :, None] * symbols[x.column][:, None])
        given = given.flatten(0, 1).t() + x.constant.flatten()
        assert bool(((given - value.flatten(1)).abs() <= 1e-9 * (1 + x.mass.flatten())).all())
        keys = x.place * x.columns + x.column
        assert bool((keys.diff() > 0).all()), "in order, each column once"
        assert float(x.error.max()) <= 1e-9 * (1 + float(x.mass.max()))


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, power=st.integers(0, 20), place=st.integers(0, 8))
def test_errors_cover_what_is_rounded(seed: int, power: int, place: int) -> None:
    """Against rational arithmetic, with weights that are large and cancel."""
    model, shape = nets.vector(seed, hidden=(5, 4))
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.weight.data = (layer.weight.data * 2.0**power).float().double()
            layer.weight.data[:, 1] = -layer.weight.data[:, 0] * (1 + 2.0**-20)
    region = nets.box(shape, seed, 0.1)
    network = Network.from_module(model, shape)
    found = bound_sites(network, region, Budget())
    values, taps = _unfolded(network, found)
    share = place / 8
    image = [Fraction(float(v)) for v in region.lower + share * (region.upper - region.lower)]
    exact: list[list[Fraction]] = []
    symbols = [a - Fraction(float(c)) for a, c in zip(image, found.center.flatten(), strict=True)]
    for i, node in enumerate(network.nodes):
        if isinstance(node, Input):
            exact.append(image)
        elif isinstance(node, Site):
            before = exact[node.inputs[0]]
            exact.append([max(z, Fraction(0)) for z in before])
            symbols += [exact[-1][int(t)] for t in taps[i]]
        else:
            before, weight, bias = exact[node.inputs[0]], vars(node)["weight"], vars(node)["bias"]
            rows = zip(weight.tolist(), bias.tolist(), strict=True)
            exact.append([sum((Fraction(w) * v for w, v in zip(r, before, strict=True)), Fraction(b)) for r, b in rows])
        x = values[i]
        for c in range(x.weights.shape[1]):
            terms = zip(x.column.tolist(), x.weights[:, c].tolist(), strict=True)
            form = sum((Fraction(w) * symbols[k] for k, w in terms), Fraction(float(x.constant.flatten()[c])))
            assert abs(form - exact[i][c]) <= Fraction(float(x.error.flatten()[c]))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, eps=st.floats(0, 0.4))
def test_spans_hold_for_whatever_columns_can_be(seed: int, eps: float) -> None:
    model, shape = nets.conv(seed)
    network, region = Network.from_module(model, shape), nets.box(shape, seed, eps)
    found = bound_sites(network, region, Budget())
    values, taps = _unfolded(network, found)
    high = [found.bounds[i][1].flatten()[index].clamp(min=0) for i, index in taps.items()]
    half = torch.cat([found.radius.flatten(), *[end / 2 for end in high]])
    middle = torch.cat([torch.zeros(found.radius.numel()).double(), *[end / 2 for end in high]])
    real = network.values(nets.points(region, seed, 30))
    for x, value in zip(values, real, strict=True):
        center, radius = spans(x, middle[: x.columns], half[: x.columns])
        assert bool(((value - center).abs() <= radius + 1e-9).all())
        assert bool((x.mass >= x.constant.abs()).all())


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.zeros(4, 4, 3, dtype=torch.float64)
    assert of_image(image, image).weights.shape == (48, 3)
    monkeypatch.setattr(affine, "LIMIT", 143)
    with pytest.raises(TooLarge):
        of_image(image, image)


def test_a_dense_layer_sees_through_moved_values() -> None:
    """A Flatten that leaves things out, or uses them twice, before a dense layer."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(10, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = x.flatten(1)
            return self.layer(torch.cat([y[:, :6], y[:, 2:6]], dim=1))

    torch.manual_seed(0)
    model = Model().double().eval()
    region = Region(torch.zeros(2, 2, 2).double(), torch.ones(2, 2, 2).double())
    network = Network.from_module(model, (2, 2, 2))
    found = bound_sites(network, region, Budget())
    values, _ = _unfolded(network, found)
    points = nets.points(region, 0, 5)
    given = (_symbols(network, found, {}, points)[values[-1].column].t() @ values[-1].weights) + values[-1].constant
    torch.testing.assert_close(given, model(points).detach(), rtol=0, atol=1e-12)


class _Shifted(nn.Module):
    """A zero moves in where the first value moved out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        shifted = nn.functional.pad(torch.relu(self.first(x))[:, 1:], (0, 1))
        return self.third(torch.relu(self.second(shifted)))


@pytest.mark.parametrize("seed", range(5))
def test_a_zero_that_moves_in_is_no_permutation(seed: int) -> None:
    torch.manual_seed(seed)
    network = Network.from_module(_Shifted().double().eval(), (3,))
    region = nets.box((3,), seed, 0.5)
    found = bound_sites(network, region, Budget())
    values, taps = _unfolded(network, found)
    points = nets.points(region, seed, 200)
    symbols, real = _symbols(network, found, taps, points), network.values(points)
    for x, value in zip(values, real, strict=True):
        linear = torch.zeros(len(points), *x.constant.shape[1:], dtype=torch.float64).flatten(1) + x.constant.flatten()
        channels = x.weights.shape[1]
        for place, column, weights in zip(x.place.tolist(), x.column.tolist(), x.weights, strict=True):
            linear[:, place * channels : (place + 1) * channels] += symbols[column][:, None] * weights
        torch.testing.assert_close(linear, value.flatten(1), rtol=0, atol=1e-9)
    for i, (low, high) in found.bounds.items():
        z = real[network.nodes[i].inputs[0]]
        assert bool((z >= low).all())
        assert bool((z <= high).all())
