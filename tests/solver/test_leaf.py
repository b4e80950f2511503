"""Leaves, in which every tap is decided: the least of them agrees with enumeration of all patterns and the oracle."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from scipy.optimize import linprog
from torch import Tensor, nn

from lingraft.solver.bounds import bound_sites
from lingraft.solver.branching import split
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import collapse
from lingraft.solver.dual import Domains, Dual, root_domains
from lingraft.solver.leaf import solve_leaf
from lingraft.solver.network import Network
from lingraft.solver.region import Region

pytestmark = pytest.mark.slow


def _by_enumeration(model: nn.Sequential, region: Any, spec: torch.Tensor, offset: float) -> float:
    """The smallest margin of Linear–ReLU–Linear–ReLU–Linear: a linear program for each of its activation patterns."""
    layers = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in model if isinstance(m, nn.Linear)]
    sizes = [len(bias) for _, bias in layers[:-1]]
    box = list(zip(region.lower.tolist(), region.upper.tolist(), strict=True))
    best = math.inf
    for pattern in itertools.product((0, 1), repeat=sum(sizes)):
        matrix, constant = np.eye(len(box)), np.zeros(len(box))
        rows, limits, first = [], [], 0
        for weight, bias in layers[:-1]:
            matrix, constant = weight @ matrix, weight @ constant + bias
            on = np.array(pattern[first : first + len(bias)])
            first += len(bias)
            sign = np.where(on, -1.0, 1.0)
            rows.append(sign[:, None] * matrix)
            limits.append(-sign * constant)
            matrix, constant = on[:, None] * matrix, on * constant
        cost = spec.numpy() @ layers[-1][0]
        found = linprog(cost @ matrix, np.concatenate(rows), np.concatenate(limits), bounds=box)
        if found.status == 0:
            best = min(best, found.fun + cost @ constant + float(spec.numpy() @ layers[-1][1]) + offset)
    return best


def _leaves(collapsed: Any) -> Domains:
    """All 2^T leaves of the first margin."""
    dual = Dual(collapsed, torch.float64)
    leaves = root_domains(collapsed, torch.float64).select(torch.tensor([0]))
    for tap in range(collapsed.count):
        leaves = split(dual, leaves, torch.full((len(leaves),), tap))
    assert not dual.splittable(leaves).any()
    return leaves


@pytest.mark.parametrize("seed", range(8))
def test_the_least_leaf_is_the_minimum(seed: int) -> None:
    model, shape = nets.vector(seed, hidden=(3, 3))
    plain = nn.Sequential(*[m if isinstance(m, nn.Linear) else nn.ReLU() for m in model]).eval()
    region = nets.box(shape, seed, 0.7)
    spec = nets.margins(seed % 3)[:1]
    _, _, collapsed = nets.collapsed(plain, region, spec, torch.full((1,), 0.1).double())
    leaves = _leaves(collapsed)
    solved = [solve_leaf(collapsed, leaves.select(torch.tensor([i])), 60) for i in range(len(leaves))]
    value, _, point = min(solved, key=lambda answer: answer[0])
    assert value == pytest.approx(_by_enumeration(plain, region, spec[0], 0.1), abs=1e-6)
    reference = Oracle(plain, region)
    assert value == pytest.approx(reference.minimum(reference.margin(spec[0], 0.1)).value, abs=1e-6)
    assert float(plain(point[None])[0].detach() @ spec[0]) + 0.1 == pytest.approx(value, abs=1e-6)


def test_the_multipliers_prove_the_bound() -> None:
    """The dual with the leaf's β gives the same bound, and never less than without."""
    for seed in range(4):
        model, shape = nets.vector(seed, hidden=(3, 2))
        _, _, collapsed = nets.collapsed(
            model, nets.box(shape, seed, 0.7), nets.margins(0)[:1], torch.zeros(1).double()
        )
        dual, leaves = Dual(collapsed, torch.float64), _leaves(collapsed)
        without = dual.bound(leaves)
        for i in range(len(leaves)):
            leaf = leaves.select(torch.tensor([i]))
            value, beta, _ = solve_leaf(collapsed, leaf, 60)
            leaf.split = torch.where(leaf.lower >= 0, 1, -1).to(leaf.split.dtype)
            leaf.beta = beta[:, None]
            assert bool((beta >= 0).all())
            assert float(dual.bound(leaf)) == pytest.approx(value, rel=1e-9, abs=1e-9)
            assert value >= float(without[i]) - 1e-6


def test_empty_leaves_are_positive_and_no_time_is_no_answer() -> None:
    """z₁ ≥ 0 and z₂ ≥ 0 exclude each other where z₂ = −1 − z₁."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        model[0].bias.copy_(torch.tensor([0.0, -1.0]))
    region = Region(torch.tensor([-3.0]).double(), torch.tensor([3.0]).double())
    _, _, collapsed = nets.collapsed(model, region, nets.margins(0, 2), torch.full((1,), -50.0).double())
    leaves = _leaves(collapsed)
    empty = ((leaves.lower >= 0).all(0)).nonzero().flatten()
    assert len(empty) == 1
    assert solve_leaf(collapsed, leaves.select(empty), 60)[0] > 0
    assert solve_leaf(collapsed, leaves.select(empty), 0.0)[0] == -math.inf
    others = [i for i in range(len(leaves)) if i != int(empty)]
    assert all(solve_leaf(collapsed, leaves.select(torch.tensor([i])), 60)[0] < 0 for i in others)


def test_without_taps() -> None:
    """A network that is linear on the region."""
    model, shape = nets.vector(2)
    model = nets.grafted(model, shape, 2, share=2.0)
    _, _, collapsed = nets.collapsed(model, nets.box(shape, 2, 0.5), nets.margins(1), torch.zeros(2).double())
    domains = root_domains(collapsed, torch.float64)
    bound = Dual(collapsed, torch.float64).bound(domains)
    for i in range(2):
        value, _, _ = solve_leaf(collapsed, domains.select(torch.tensor([i])), 60)
        assert value == pytest.approx(float(bound[i]), abs=1e-7)


@pytest.mark.parametrize("power", [-40, 60, 100])
def test_no_scale_of_the_weights_makes_a_leaf_look_empty(power: int) -> None:
    """A solver calls badly scaled programs infeasible; a leaf's bound may not depend on that."""

    def bounds(model: nn.Module, region: Region) -> list[float]:
        _, _, collapsed = nets.collapsed(model, region, nets.margins(0)[:1], torch.zeros(1).double())
        leaves = _leaves(collapsed)
        return [solve_leaf(collapsed, leaves.select(torch.tensor([i])), 60)[0] for i in range(len(leaves))]

    full = 0
    for seed in range(2):
        model, shape = nets.vector(seed, hidden=(3, 3))
        plain = nn.Sequential(*[m if isinstance(m, nn.Linear) else nn.ReLU() for m in model]).eval()
        region = nets.box(shape, seed, 0.7)
        reference = bounds(plain, region)
        for depth, layer in enumerate([m for m in plain if isinstance(m, nn.Linear)]):
            layer.weight.data *= 2.0**power
            layer.bias.data *= 2.0 ** (power * (depth + 1))
        scale = 2.0 ** (3 * power)
        for value, expected in zip(bounds(plain, region), reference, strict=True):
            assert value == pytest.approx(expected * scale, rel=1e-6, abs=1e-6 * scale) or min(value, expected) > 0
            full += expected < 0
    assert full > 0


def _on_edge(seed: int, size: float) -> tuple[nn.Sequential, Tensor, list[Fraction], Fraction]:
    """A network, an image at which its first neurons are within rounding of 0, these, and the margin there, exactly."""
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    model = nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Linear(3, 2)).double().eval()
    first, last, image = model[0], model[2], some(8)
    with torch.no_grad():
        first.weight.copy_(size * some(3, 8))
        first.bias.copy_(-(first.weight @ image))
        last.weight.copy_(some(2, 3))
        last.bias.copy_(torch.tensor([-5e-6, 0.0]))
    terms = zip(first.weight.tolist(), first.bias.tolist(), strict=True)
    z = [
        sum((Fraction(w) * Fraction(x) for w, x in zip(row, image.tolist(), strict=True)), Fraction(b))
        for row, b in terms
    ]
    logits = [
        sum((Fraction(w) * max(v, Fraction(0)) for w, v in zip(row, z, strict=True)), Fraction(b))
        for row, b in zip(last.weight.tolist(), last.bias.tolist(), strict=True)
    ]
    return model, image, z, logits[0] - logits[1]


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_large_multipliers_do_not_make_a_proof_of_rounding(size: float) -> None:
    """The image is in the leaf, by exact arithmetic, so no β may prove more of the leaf than its margin."""
    tested = 0
    for seed in range(60):
        model, image, z, margin = _on_edge(seed, size)
        network = Network.from_module(model, (8,))
        found = bound_sites(network, Region(image, image), Budget())
        collapsed = collapse(network, found, nets.margins(0, 2), torch.zeros(1).double())
        leaf = root_domains(collapsed, torch.float64)
        for tap, neuron in enumerate(collapsed.taps[0].index.tolist()):
            on = z[neuron] >= 0
            leaf.split[tap] = 1 if on else -1
            leaf.lower[tap], leaf.upper[tap] = (0.0, leaf.upper[tap]) if on else (leaf.lower[tap], 0.0)
        for beta in (1.0, 1e4, 1e8):
            leaf.beta.fill_(beta)
            tested += collapsed.count
            assert Fraction(float(Dual(collapsed, torch.float64).bound(leaf))) <= margin
    assert tested > 100
