"""The part of a network that moves is the network, whichever inputs move; what it is given lies between its bounds."""

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver.moving import MovingPart, moving_part
from lingraft.solver.network import Network

SEEDS = st.integers(0, 10**6)


class Rows(nn.Module):
    """Rows of an input, each through the same layers, weighted by a part of it, averaged and joined to another."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.other, self.last = nn.Linear(3, 5), nn.Linear(4, 3), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        values, weights = x[:, :, :3], x[:, :, 3:]
        mean = (self.each(values).relu() * weights).sum(1) / (0.5 + weights.abs().sum(1))
        return torch.sigmoid(self.last(torch.cat([mean, self.other(x[:, 0]).relu()], 1)))


def _points(network: Network, moving: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A box in which only some inputs have a width, and points (20, n) of it, flat in the inner order."""
    generator = torch.Generator().manual_seed(seed)
    lower = torch.rand(1, len(moving), generator=generator, dtype=torch.float64)
    upper = lower + moving * torch.rand(1, len(moving), generator=generator, dtype=torch.float64)
    share = torch.rand(20, len(moving), generator=generator, dtype=torch.float64)
    return lower, upper, lower + share * (upper - lower)


def _inputs(part: MovingPart, network: Network, points: Tensor) -> tuple[Tensor, Tensor]:
    """What the part is given at points of the whole network, and the outputs of the whole there."""
    values = network.values(network.outside(points.view(-1, *network.nodes[0].shape)))
    values += [node.forward(*(values[j] for j in node.inputs)) for node in part.sums]
    pairs = zip(part.nodes.tolist(), part.values.tolist(), strict=True)
    return torch.stack([values[i].flatten(1)[:, v] for i, v in pairs], 1), values[len(network.nodes) - 1]


def _check(model: nn.Module, shape: tuple[int, ...], moving: Tensor, seed: int) -> MovingPart:
    network = Network.from_module(model.double().eval(), shape)
    lower, upper, points = _points(network, moving, seed)
    with torch.no_grad():
        part = moving_part(network, moving)
        given_, outputs = _inputs(part, network, points)
        assert torch.allclose(part.network.forward(given_), outputs, rtol=1e-9, atol=1e-9)
        low, high = part.boxes(network, lower, upper)
    assert bool(((given_ >= low) & (given_ <= high)).all())
    count = int(moving.sum())
    assert torch.equal(low[:, :count], lower[:, moving])
    assert torch.equal(high[:, :count], upper[:, moving])
    assert float((high - low)[:, count:].max() if part.network.nodes[0].size > count else 0.0) < 1e-9
    return part


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, moving=st.lists(st.booleans(), min_size=12, max_size=12).filter(any))
def test_rows_products_and_sums(seed: int, moving: list[bool]) -> None:
    torch.manual_seed(seed)
    _check(Rows(), (3, 4), torch.tensor(moving), seed)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["relu", "leaky", "sigmoid"]), share=st.floats(0.02, 0.5))
def test_convolutions(seed: int, kind: str, share: float) -> None:
    model, shape = nets.conv(seed, None, kind, small=True)
    size = int(torch.tensor(shape).prod())
    moving = torch.rand(size, generator=torch.Generator().manual_seed(seed)) < share
    moving[seed % size] = True
    _check(model, shape, moving, seed)


@pytest.mark.parametrize("moves", [[0], [3], [11], [0, 4]])
def test_little_is_left_where_little_moves(moves: list[int]) -> None:
    torch.manual_seed(0)
    moving = torch.zeros(12, dtype=torch.bool)
    moving[moves] = True
    model = Rows()
    part = _check(model, (3, 4), moving, 1)
    whole = Network.from_module(model, (3, 4))
    sites = [sum(network.nodes[i].size for i in network.sites) for network in (part.network, whole)]
    assert sites[0] < sites[1]


def test_outputs_that_do_not_move_are_known() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight[:, 0] = 0.0
    part = _check(nn.Sequential(layer, nn.ReLU()), (4,), torch.tensor([True, False, False, False]), 2)
    assert not part.network.sites


def test_what_positions_add_up_without_moving_has_the_bias_once() -> None:
    torch.manual_seed(0)
    moving = torch.zeros(2, 2, 6, dtype=torch.bool)
    moving[:, 0, 1] = True
    part = _check(nn.Sequential(nn.Conv2d(6, 2, 1), nn.Sigmoid(), nn.Flatten()), (6, 2, 2), moving.flatten(), 3)
    assert part.sums
