"""The cone of influence: what it leaves out changes no margin, and bounds are the same without it."""

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lingraft.solver.bounds import bound_sites, margin_crown
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import collapse
from lingraft.solver.network import Network
from lingraft.solver.verifier import Problem, Verifier
from lingraft.solver.visible import visible

SEEDS = st.integers(0, 10**6)


def _map(seed: int, zeros: bool = False) -> tuple[nn.Module, tuple[int, ...]]:
    """Convolutions whose outputs are a map of 4 × 4, some weights 0."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(2, 3, 3, 2, 1), nn.Conv2d(3, 4, 3, 1, 1), nn.Conv2d(4, 2, 3, 1, 1)]
    with torch.no_grad():
        for layer in layers:
            layer.weight *= torch.rand_like(layer.weight) < 0.3 if zeros else 2.0
    one, two, three = layers
    return nn.Sequential(one, nn.ReLU(), two, nn.ReLU(), three, nn.Flatten()).double().eval(), (2, 8, 8)


def _from(network: Network, values: list[Tensor], changed: int) -> Tensor:
    """The logits, given the values of the nodes up to one of them."""
    values = values[: changed + 1]
    for node in network.nodes[changed + 1 :]:
        values.append(node.forward(*[values[j] for j in node.inputs]))
    return values[-1]


@settings(max_examples=6, deadline=None)
@given(
    seed=SEEDS, operation=st.sampled_from([None, "residual", "concat", "pad", "move", "maximum"]), zeros=st.booleans()
)
def test_what_is_left_out_changes_nothing(seed: int, operation: str | None, zeros: bool) -> None:
    model, shape = _map(seed, zeros) if operation is None else nets.conv(seed, operation)
    network = Network.from_module(nets.grafted(model, shape, seed) if seed % 2 else model, shape)
    generator = torch.Generator().manual_seed(seed)
    spec = torch.zeros(1, network.nodes[-1].size, dtype=torch.float64)
    spec[0, seed % network.nodes[-1].size] = 1.0
    seen = visible(network, spec)
    if seen is None:
        return
    values = network.values(torch.rand(1, *shape, generator=generator).double())
    for i in range(len(network.nodes) - 1):
        hidden = torch.rand(values[i].shape, generator=generator).double() * 10 - 5
        changed = [*values[:i], torch.where(seen[i], values[i], hidden)]
        # what else the nodes before it give to later ones stays as it was
        ours, theirs = (_from(network, given, i) @ spec.T for given in (changed, values))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_the_cone_of_one_output_is_its_receptive_field() -> None:
    model, shape = _map(0)
    network = Network.from_module(model, shape)
    spec = torch.zeros(2, 32, dtype=torch.float64)
    spec[0, 0] = spec[1, 16] = 1.0  # the corner of the map, in both channels
    seen = visible(network, spec)
    assert seen is not None
    assert [int(seen[i].sum()) for i in network.sites] == [3 * 3 * 3, 2 * 2 * 4]
    assert int(seen[0].sum()) == 6 * 6 * 2
    assert visible(network, torch.ones(1, 32, dtype=torch.float64)) is None
    nothing = visible(network, torch.zeros(1, 32, dtype=torch.float64))
    assert nothing is not None
    assert not any(bool(part.any()) for part in nothing)


@pytest.mark.parametrize("rows_only", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_and_margins_are_those_without_it(seed: int, rows_only: bool) -> None:
    model, shape = _map(seed, zeros=bool(seed % 2))
    network, region = Network.from_module(model, shape), nets.box(shape, seed, 0.3)
    spec, offset = torch.zeros(2, 32, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    spec[0, 5], spec[1, 6] = 1.0, -1.0
    seen = visible(network, spec)
    assert seen is not None

    def found(cone: list[Tensor] | None) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        bounds = bound_sites(network, region, Budget(), visible=cone)
        small = collapse(network, bounds, spec, offset)
        taps = [torch.zeros(network.nodes[t.site].size).bool().index_fill_(0, t.index, True) for t in small.taps]
        ends = [end[seen[i]] for i in network.sites for end in bounds.bounds[i]]
        if cone is not None:
            points = network.inside(nets.points(region, seed, 20)).flatten(1)
            z, h = nets.tap_values(network, small, nets.points(region, seed, 20))
            margins = small.p.t() @ points.t() + small.q.t() @ h + small.c[:, None]
            expected = network.forward(nets.points(region, seed, 20)) @ spec.T
            torch.testing.assert_close(margins.t(), expected, rtol=0, atol=1e-9)
            assert len(z) == small.count
        return margin_crown(network, bounds, spec, offset), ends, taps

    if rows_only:
        with nets.rows_only():
            ours, theirs = found(seen), found(None)
    else:
        ours, theirs = found(seen), found(None)
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=1e-9)
    for one, other in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    for i, one, other in zip(network.sites, ours[2], theirs[2], strict=True):
        assert bool((one == (other & seen[i].flatten())).all())
    assert sum(int(t.sum()) for t in ours[2]) < sum(int(t.sum()) for t in theirs[2])


@pytest.mark.parametrize("shift", [-0.02, 0.02])
def test_verdicts_are_right(shift: float) -> None:
    """Close to the lowest value that one output takes, found by sampling and descent."""
    model, shape = _map(3)
    network, region = Network.from_module(model, shape), nets.box(shape, 3, 0.05)
    spec = torch.zeros(1, 32, dtype=torch.float64)
    spec[0, 9] = 1.0
    lowest = float((network.forward(nets.points(region, 3, 4000, model)) @ spec.T).min())
    middle = ((region.lower + region.upper) / 2).float()
    problem = Problem(middle, region, spec.float(), torch.tensor([shift - lowest]))
    result = Verifier(network).verify(problem, 30.0)
    assert result.verdict == ("falsified" if shift < 0 else "verified")
