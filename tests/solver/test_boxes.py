"""Branch and bound over the input: no point is lost, verdicts are exact and those of the search over the neurons."""

import pickle
from contextlib import suppress
from typing import Any

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.formats.certificate_writer import tree_of_boxes
from lingraft.solver.bab import Falsified
from lingraft.solver.boxes import Boxes, BoxSearch, Maxima
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.network import Network
from lingraft.solver.nodes import Dense
from lingraft.solver.proof import BoxProof
from lingraft.solver.region import Region
from lingraft.solver.rounding import Sizes

SEEDS = st.integers(0, 10**6)


def _search(network: Network, region: Region, spec: Tensor, offset: Tensor, **more: Any) -> BoxSearch:
    """With attacks that try the points they get, in float64."""
    lower, upper = (network.inside(t[None]).flatten() for t in (region.lower, region.upper))

    def attack(points: Tensor) -> Tensor | None:
        points = torch.minimum(torch.maximum(points, lower), upper)
        margins = network.forward(network.outside(points.view(-1, *network.nodes[0].shape))) @ spec.T + offset
        broken = (margins < 0).any(1).nonzero().flatten()
        return points[broken[0]] if len(broken) else None

    return BoxSearch(
        network, Sizes(network), spec, offset, Boxes.whole(lower, upper, len(spec)), more.pop("attack", attack), **more
    )


def _verdict(search: BoxSearch, seconds: float = 30) -> str:
    try:
        return "verified" if search.run(Budget(seconds)) else "stopped"
    except Falsified:
        return "falsified"
    except Exhausted as end:
        return end.reason


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_halves_are_the_box(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    cut = torch.randint(0, 3, (5,), generator=generator)
    boxes = Boxes(ends.amin(0), ends.amax(0) + 1e-3, torch.zeros(5), cut, torch.arange(5), torch.ones(5, 1))
    halves = boxes.halves(5)
    assert halves.node.tolist() == list(range(5, 15))
    share = torch.rand(200, 5, 3, generator=generator, dtype=torch.float64)
    points = boxes.lower + (boxes.upper - boxes.lower) * share
    inside = ((points >= boxes.lower) & (points <= boxes.upper)).all(2)
    for half in (slice(0, 5), slice(5, 10)):
        assert bool((halves.lower[half] >= boxes.lower).all() and (halves.upper[half] <= boxes.upper).all())
    found = [((points >= halves.lower[h]) & (points <= halves.upper[h])).all(2) for h in (slice(0, 5), slice(5, 10))]
    assert bool(((found[0] | found[1]) == inside).all())
    volumes = (halves.upper - halves.lower).prod(1)
    torch.testing.assert_close(volumes[:5] + volumes[5:], (boxes.upper - boxes.lower).prod(1))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_open_boxes_hold_every_point_that_is_not_right(seed: int) -> None:
    """Whenever the search is stopped, without attacks: points with a margin of 0 or less are in one of its boxes."""
    model, shape = nets.vector(seed, "relu", hidden=(6, 5))
    region, spec = nets.box(shape, seed, 0.8), nets.margins(seed % 3)
    points = nets.points(region, seed, 400)
    with torch.no_grad():
        offset = -(model(points) @ spec.T).quantile(0.05, dim=0)
        wrong = points[(model(points) @ spec.T + offset <= 0).any(1)]
    search = _search(Network.from_module(model, shape), region, spec, offset, attack=lambda _: None)
    search.batch = search.widest = 4
    for turn in range(1, 7):
        calls = iter([False] * turn + [True])
        with suppress(Exhausted):  # at a box that is a single point, as nobody attacks
            assert not search.run(Budget(), lambda c=calls: next(c))
        boxes = search.open
        inside = ((wrong[:, None] >= boxes.lower) & (wrong[:, None] <= boxes.upper)).all(2).any(1)
        assert bool(inside.all())


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_are_exact(seed: int) -> None:
    model, shape = nets.vector(seed, hidden=(6, 5))
    region, spec = nets.box(shape, seed, 0.8), nets.margins(seed % 3)[:1]
    exact = Oracle(model, region)
    lowest = exact.minimum(exact.margin(spec[0])).value
    network = Network.from_module(model, shape)
    for share, expected in ((0.01, "verified"), (-0.01, "falsified")):
        offset = torch.tensor([share - lowest], dtype=torch.float64)
        assert _verdict(_search(network, region, spec, offset)) == expected


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_smooth_networks_with_narrow_margins_are_decided(kind: str) -> None:
    model, shape = nets.vector(5, kind, inputs=2, hidden=(6, 5), gain=2)
    region, spec = nets.box(shape, 5, 0.8), nets.margins(0)[:1]
    grid = torch.cartesian_prod(
        *(torch.linspace(a, b, 400).double() for a, b in zip(*vars(region).values(), strict=True))
    )
    with torch.no_grad():
        lowest = (model(grid) @ spec.T).min()
    network = Network.from_module(model, shape)
    for share, expected in ((1e-3, "verified"), (-1e-3, "falsified")):
        assert _verdict(_search(network, region, spec, (share - lowest)[None])) == expected


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky"]), graft=st.booleans())
def test_verdicts_are_those_of_the_search_over_neurons(seed: int, kind: str, graft: bool) -> None:
    model, shape = nets.vector(seed, kind, hidden=(6, 5))
    model = nets.grafted(model, shape, seed) if graft else model
    region, spec = nets.box(shape, seed, 0.6), nets.margins(seed % 3)
    points = nets.points(region, seed, 400, model)
    with torch.no_grad():
        lowest = (model(points) @ spec.T).amin(0)
    for above in (0.05, -0.05):
        offset = above - lowest
        ours = _verdict(_search(Network.from_module(model, shape), region, spec, offset))
        theirs = nets.verify(model, region, spec, offset, double=True).verdict
        assert ours == theirs or {ours, theirs} == {"falsified", "misclassified"}


def test_a_narrow_spike_is_never_verified() -> None:
    """A margin of 1 everywhere but near a point, where it is negative; nobody looks for it."""
    first, last = nn.Linear(2, 4), nn.Linear(4, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]]) * 300)
        first.bias.copy_(300 * torch.tensor([-0.3, 0.3, -0.7, 0.7]))
        last.weight.fill_(1.0)
        last.bias.fill_(-0.5)
    model = nn.Sequential(first, nn.ReLU(), last).double().eval()  # 300·(|x − 0.3| + |y − 0.7|) − 0.5
    region = Region(torch.zeros(2).double(), torch.ones(2).double())
    spec, offset = torch.ones(1, 1).double(), torch.zeros(1).double()
    network = Network.from_module(model, (2,))
    assert _verdict(_search(network, region, spec, offset)) == "falsified"
    assert _verdict(_search(network, region, spec, offset, attack=lambda _: None), 1) != "verified"


def test_margins_that_are_maxima_are_proven_by_their_parts() -> None:
    """max(x + y − 1.2, 0.9 − x, 0.9 − y) is positive, which each part is only somewhere."""
    rows = torch.tensor([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(rows)
        layer.bias.copy_(torch.tensor([-1.2, 0.9, 0.9]))
    model = nn.Sequential(layer, nn.Unflatten(1, (1, 1, 3)), nn.MaxPool2d((1, 3)), nn.Flatten()).double().eval()
    network = Network.from_module(model, (2,))
    node = next(i for i, n in enumerate(network.nodes) if isinstance(n, Dense) and torch.equal(n.weight, rows.double()))
    region = Region(torch.zeros(2).double(), torch.full((2,), 2.0).double())
    maxima = Maxima(node, torch.tensor([[0, 1, 2]]))
    visited = []
    for more in ({}, {"maxima": maxima}):
        search = _search(network, region, torch.ones(1, 1).double(), torch.zeros(1).double(), **more)
        assert _verdict(search) == "verified"
        visited.append(search.visited)
    assert visited[1] < visited[0]
    lower = _search(network, region, torch.ones(1, 1).double(), torch.full((1,), -0.21).double(), maxima=maxima)
    assert _verdict(lower) == "falsified"


@pytest.mark.parametrize("above", [1e-3, -1e-3])
def test_the_verifier_decides_a_smooth_network_with_a_narrow_margin(above: float) -> None:
    """Whoever is first, by cutting intervals of neurons or boxes of the input: it does not end as unknown."""
    model, shape = nets.vector(5, "tanh", inputs=2, hidden=(6, 5), gain=2)
    region, spec = nets.box(shape, 5, 0.8), nets.margins(0)[:1]
    ends = zip(region.lower.tolist(), region.upper.tolist(), strict=True)
    grid = torch.cartesian_prod(*(torch.linspace(a, b, 400).double() for a, b in ends))
    with torch.no_grad():
        margins = model(grid) @ spec.T
    result = nets.verify(model, region, spec, (above - margins.min())[None], image=grid[margins.argmax()])
    assert result.verdict == ("verified" if above > 0 else "falsified")


class _Pole(nn.Module):
    """1 / (|w·x| + 0.1): intervals of |w·x|, a line and a bend, reach below −0.1 where the box is wide."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 4, dtype=torch.float64), nn.Linear(4, 1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.reciprocal(self.first(x).abs() + 0.1))
        return out


@pytest.mark.parametrize("above", [0.01, -0.01])
def test_a_pole_that_the_bounds_of_the_region_alone_have_is_cut_away(above: float) -> None:
    torch.manual_seed(0)
    model, spec = _Pole().eval(), torch.ones(1, 1).double()
    region = Region(torch.full((2,), -1.0).double(), torch.full((2,), 1.0).double())
    ticks = torch.linspace(-1, 1, 800).double()
    with torch.no_grad():
        margins = model(torch.cartesian_prod(ticks, ticks)).flatten()
    image = torch.cartesian_prod(ticks, ticks)[margins.argmax()]
    network = Network.from_module(model, (2,))
    silent = _search(network, region, spec, above - margins.min()[None], attack=lambda points: None)
    result = nets.verify(model, region, spec, above - margins.min()[None], image=image)
    if above > 0:
        assert result.verdict == _verdict(silent) == "verified"
        assert result.stage == "boxes"
    else:
        assert result.verdict == "falsified"
        assert _verdict(silent, 1.0) != "verified"


class _Interrupted(Budget):
    """The time is over at some looks at the clock."""

    looks = 0

    def check_time(self) -> None:
        self.looks += 1
        if self.looks in (60, 61, 100, 150, 300):  # not in the first box, which is then cut at once
            raise Exhausted("time")


def test_a_search_that_is_interrupted_again_and_again_has_the_same_proof() -> None:
    """In the middle of a batch, or between two; the proof may also be sent to another process on the way."""
    model, shape = nets.vector(2, hidden=(6, 5))
    region, spec = nets.box(shape, 2, 0.8), nets.margins(2)
    points = nets.points(region, 2, 4000, model)
    with torch.no_grad():
        lowest = (model(points) @ spec.T).amin(0)
    network, trees = Network.from_module(model, shape), []
    for budget in (Budget(), _Interrupted()):
        search, done, interruptions = _search(network, region, spec, 0.05 - lowest, proof=BoxProof([0, 1])), False, 0
        search.batch = search.widest = 4
        while not done:
            try:
                done = search.run(budget, iter([False, True] * 1000).__next__)
            except Exhausted:
                interruptions += 1
        proof = pickle.loads(pickle.dumps(search.proof))
        trees.append(tree_of_boxes(proof, 1, torch.arange(3).numpy()))
        assert bool(interruptions) == (type(budget) is _Interrupted)
    assert len(trees[0].nodes) > 5
    for name, array in vars(trees[0]).items():
        assert array.tolist() == getattr(trees[1], name).tolist()
