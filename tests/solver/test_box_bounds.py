"""Bounds over many boxes at once: sound for every operation and activation, exact on points, those of single boxes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.model.activations import KNOWN, Lines
from lingraft.solver import box_bounds
from lingraft.solver.bounds import margin_crown
from lingraft.solver.box_bounds import BoxBounds
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes

SEEDS = st.integers(0, 10**6)
#: What rounding of sums of a few numbers around one may cost.
ROUNDING = 1e-9


def _parts(region: Region, seed: int, count: int = 6) -> tuple[Tensor, Tensor]:
    """The region itself and random boxes inside it, some flat: lower and upper (B, *shape)."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.rand(2, count, *region.lower.shape, generator=generator, dtype=torch.float64)
    ends = region.lower + (region.upper - region.lower) * ends
    ends[:, -1] = ends[0, -1]
    low, high = ends.amin(0), ends.amax(0)
    return torch.cat([region.lower[None], low]), torch.cat([region.upper[None], high])


def _bounded(network: Network, lower: Tensor, upper: Tensor) -> BoxBounds:
    return BoxBounds(network, *(network.inside(t).flatten(1) for t in (lower, upper)), Sizes(network))


def _assert_sound(model: nn.Module, region: Region, seed: int) -> None:
    network = Network.from_module(model, region.lower.shape)
    lower, upper = _parts(region, seed)
    bounds = _bounded(network, lower, upper)
    spec, offset = nets.margins(seed % 3), torch.tensor([0.3, -0.2], dtype=torch.float64)
    last = len(network.nodes) - 1
    below, rows, _ = bounds.functions(last, spec, offset)
    by_intervals = bounds.intervals(last, spec, offset)
    for b in range(len(lower)):
        points = nets.points(Region(lower[b], upper[b]), seed, 40, model)
        with torch.no_grad():
            values = network.values(points)
        for i, (low, high) in bounds.found.bounds.items():
            z = values[network.nodes[i].inputs[0]]
            assert bool((z >= low[b] - ROUNDING).all())
            assert bool((z <= high[b] + ROUNDING).all())
        margins = values[-1] @ spec.T + offset
        assert bool((margins >= by_intervals[b] - ROUNDING).all())
        x, low, high = (network.inside(t).flatten(1) for t in (points, lower[b, None], upper[b, None]))
        least = (rows[b].clamp(min=0) * low + rows[b].clamp(max=0) * high).sum(1)
        assert bool((margins >= below[b] + x @ rows[b].T - least - ROUNDING).all())


@pytest.mark.parametrize("operation", ["conv", "batch norm", "average", "maximum", "residual", "concat", "pad", "affine",
                                       "move", "identity"])  # fmt: skip
@settings(max_examples=3, deadline=None)
@given(
    seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]), eps=st.floats(0, 0.5), graft=st.booleans()
)
def test_samples_of_every_operation_lie_inside(operation: str, seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, operation, kind, small=True)
    model = nets.grafted(model, shape, seed) if graft else model
    _assert_sound(model, nets.box(shape, seed, eps), seed)


@pytest.mark.parametrize("name", sorted(name for name, record in KNOWN.items() if record.modules))
def test_samples_of_every_activation_lie_inside(name: str) -> None:
    torch.manual_seed(sorted(KNOWN).index(name))
    layers = [nn.Linear(3, 5), KNOWN[name].module(), nn.Linear(5, 4), KNOWN[name].module(), nn.Linear(4, 3)]
    _assert_sound(nn.Sequential(*layers).double().eval(), nets.box((3,), 1, 1.5), 2)


@contextmanager
def _alone() -> Iterator[None]:
    """Every box is unfolded by itself, as where it has many rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_bounds, "FREE", 0.0)
        yield


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "tanh"]), eps=st.floats(0, 0.5), graft=st.booleans())
def test_samples_lie_inside_where_boxes_are_unfolded(seed: int, kind: str, eps: float, graft: bool) -> None:
    model, shape = nets.conv(seed, None, kind, small=True)
    model = nets.grafted(model, shape, seed) if graft else model
    with _alone():
        _assert_sound(model, nets.box(shape, seed, eps), seed)


@pytest.mark.parametrize("seed", range(4))
def test_unfolded_boxes_have_the_same_open_neurons_and_margins(seed: int) -> None:
    model, shape = nets.vector(seed, hidden=(12, 10))
    network = Network.from_module(model, shape)
    lower, upper = _parts(nets.box(shape, seed, 0.8), seed)
    rows = _bounded(network, lower, upper)
    with _alone():
        unfolded = _bounded(network, lower, upper)
    assert len(unfolded.alone) == len(lower)
    assert not rows.alone
    for i in network.sites:
        open_ = unfolded.found.unstable(network, i)
        assert bool((open_ == rows.found.unstable(network, i)).all())
        for ours, theirs in zip(unfolded.found.bounds[i], rows.found.bounds[i], strict=True):
            torch.testing.assert_close(ours[open_], theirs[open_], rtol=0, atol=ROUNDING)
    last, spec, offset = len(network.nodes) - 1, nets.margins(0), torch.zeros(2, dtype=torch.float64)
    for ours, theirs in zip(*(b.functions(last, spec, offset)[:2] for b in (unfolded, rows)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=ROUNDING)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "tanh"]), graft=st.booleans())
def test_a_batch_is_its_boxes_one_by_one(seed: int, kind: str, graft: bool) -> None:
    model, shape = nets.vector(seed, kind, hidden=(6, 5))
    model = nets.grafted(model, shape, seed) if graft else model
    network = Network.from_module(model, shape)
    lower, upper = _parts(nets.box(shape, seed, 0.8), seed)
    together = _bounded(network, lower, upper)
    spec, offset = nets.margins(0), torch.zeros(2, dtype=torch.float64)
    below, rows, _ = together.functions(len(network.nodes) - 1, spec, offset)
    for b in range(len(lower)):
        alone = _bounded(network, lower[b : b + 1], upper[b : b + 1])
        one, row, _ = alone.functions(len(network.nodes) - 1, spec, offset)
        torch.testing.assert_close(below[b], one[0], rtol=0, atol=ROUNDING)
        torch.testing.assert_close(rows[b], row[0], rtol=0, atol=ROUNDING)
        found = replace(
            alone.found,
            lines={i: Lines(*(line[0] for line in lines)) for i, lines in alone.found.lines.items()},
            center=alone.found.center[0],
            radius=alone.found.radius[0],
            logits=tuple(end[0] for end in alone.values[-1]),
        )
        known = torch.maximum(one, alone.intervals(len(network.nodes) - 1, spec, offset))[0]
        torch.testing.assert_close(known, margin_crown(network, found, spec, offset), rtol=0, atol=ROUNDING)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid", "tanh"]))
def test_on_points_bounds_are_values(seed: int, kind: str) -> None:
    model, shape = nets.vector(seed, kind)
    network = Network.from_module(model, shape)
    points = nets.points(nets.box(shape, seed, 1.0), seed, 4)
    spec, offset = nets.margins(1), torch.zeros(2, dtype=torch.float64)
    bounds = _bounded(network, points, points)
    below, _, _ = bounds.functions(len(network.nodes) - 1, spec, offset)
    intervals = bounds.intervals(len(network.nodes) - 1, spec, offset)
    with torch.no_grad():
        torch.testing.assert_close(torch.maximum(below, intervals), model(points) @ spec.T, rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", [nullcontext, _alone])
def test_harm_is_due_to_the_input_that_moves_the_open_neuron(way: Callable[[], AbstractContextManager[None]]) -> None:
    first, last = nn.Linear(2, 2), nn.Linear(2, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        first.bias.copy_(torch.tensor([0.0, 5.0]))  # the second neuron is always on
        last.weight.copy_(torch.tensor([[-1.0, 3.0]]))
    network = Network.from_module(nn.Sequential(first, nn.ReLU(), last).double().eval(), (2,))
    corner = torch.ones(1, 2, dtype=torch.float64)
    with way():
        bounds = BoxBounds(network, -corner, corner, Sizes(network))
    harm = bounds.harm(len(network.nodes) - 1, torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))
    torch.testing.assert_close(harm, torch.tensor([[0.5, 0.0]], dtype=torch.float64))  # the gap is −l·u / (u − l)


def test_a_single_input_that_moves_has_all_the_harm() -> None:
    network = Network.from_module(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double().eval(), (3,))
    lower = torch.zeros(2, 3, dtype=torch.float64)
    upper = lower + torch.tensor([0.0, 1.0, 0.0])
    bounds = BoxBounds(network, lower, upper, Sizes(network))
    harm = bounds.harm(len(network.nodes) - 1, torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))
    assert harm.argmax(1).tolist() == [1, 1]
    assert harm[:, [0, 2]].count_nonzero() == 0


class Weighted(nn.Module):
    """Two values, each times an input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 2).double(), nn.Linear(2, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x[:, :1]) * x[:, 1:])


def test_products_by_numbers_are_linear() -> None:
    """With the weights fixed nothing bends: planes are exact, and there are no quadratic functions to pass back."""
    torch.manual_seed(0)
    model = Weighted().eval()
    network = Network.from_module(model, (3,))
    lower = torch.tensor([[-1.0, 0.3, -0.7], [0.2, 10.0, 0.0]], dtype=torch.float64)
    upper = lower + torch.tensor([1.0, 0.0, 0.0])
    one, none = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    bounds = BoxBounds(network, lower, upper, Sizes(network))
    assert bounds.curves is None
    with torch.no_grad():
        least = torch.minimum(model(lower), model(upper))
    below = bounds.functions(len(network.nodes) - 1, one, none).below
    assert bool((below <= least).all())
    torch.testing.assert_close(below, least, rtol=1e-6, atol=1e-6)
    wide = BoxBounds(network, lower, upper + 1.0, Sizes(network))
    assert wide.curves is not None


class BentProduct(nn.Module):
    """A ReLU that gets a product itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4).double(), nn.Linear(2, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).split(2, dim=1)
        return self.last((a * b).relu())


@pytest.mark.parametrize("seed", range(3))
def test_products_that_bend(seed: int) -> None:
    torch.manual_seed(seed)
    _assert_sound(BentProduct().eval(), nets.box((3,), seed, 1.0), seed)
