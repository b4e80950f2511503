"""Exact minima agree with enumeration of all activation patterns, and with the oracle."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn

from lingraft.verification.branching import split
from lingraft.verification.dual import Dual, root_domains
from lingraft.verification.exact import exact_minimum


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


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_enumeration_and_the_oracle(nets: Any, oracle: Any, seed: int) -> None:
    model, shape = nets.vector(seed, hidden=(4, 3))
    plain = nn.Sequential(*[m if isinstance(m, nn.Linear) else nn.ReLU() for m in model]).eval()
    region = nets.box(shape, seed, 0.7)
    spec = nets.margins(seed % 3)
    _, _, collapsed = nets.collapsed(plain, region, spec, torch.full((2,), 0.1).double())
    for margin in range(2):
        domain = root_domains(collapsed, torch.float64).select(torch.tensor([margin]))
        value, point = exact_minimum(collapsed, domain, 60)
        assert value == pytest.approx(_by_enumeration(plain, region, spec[margin], 0.1), abs=1e-6)
        reference = oracle(plain, region)
        assert value == pytest.approx(reference.minimum(reference.margin(spec[margin], 0.1)).value, abs=1e-6)
        assert float(plain(point[None])[0].detach() @ spec[margin]) + 0.1 == pytest.approx(value, abs=1e-6)


def test_decided_domains_are_linear_programs(nets: Any) -> None:
    """The smallest of all 2^T leaves is the minimum of the root, and empty leaves are infinite."""
    for seed in range(4):
        model, shape = nets.vector(seed, hidden=(3, 2))
        region = nets.box(shape, seed, 0.7)
        _, _, collapsed = nets.collapsed(model, region, nets.margins(0)[:1], torch.zeros(1).double())
        dual = Dual(collapsed, torch.float64)
        leaves = root_domains(collapsed, torch.float64)
        for tap in range(collapsed.count):
            leaves = split(dual, leaves, torch.full((len(leaves),), tap))
        assert not dual.splittable(leaves).any()
        values = [exact_minimum(collapsed, leaves.select(torch.tensor([i])), 60)[0] for i in range(len(leaves))]
        root = exact_minimum(collapsed, root_domains(collapsed, torch.float64), 60)[0]
        assert min(values) == pytest.approx(root, abs=1e-6)
        bounds = dual.bound(leaves)
        assert all(value >= bound - 1e-6 for value, bound in zip(values, bounds.tolist(), strict=True))


def test_empty_domains_and_no_time(nets: Any) -> None:
    model, shape = nets.vector(1, hidden=(6, 6))
    _, _, collapsed = nets.collapsed(model, nets.box(shape, 1, 0.7), nets.margins(0)[:1], torch.zeros(1).double())
    domain = root_domains(collapsed, torch.float64)
    value, _ = exact_minimum(collapsed, domain, 0.0)
    assert value == -math.inf
    value, _ = exact_minimum(collapsed, domain, -5.0)
    assert value == -math.inf
    empty = root_domains(collapsed, torch.float64)
    empty.lower[0] = empty.upper[0] + 0.5
    assert exact_minimum(collapsed, empty, 60) == (math.inf, None)


def test_without_taps(nets: Any) -> None:
    """A network that is linear on the region."""
    model, shape = nets.vector(2)
    model = nets.grafted(model, shape, 2, share=2.0)
    region = nets.box(shape, 2, 0.5)
    spec = nets.margins(1)
    _, _, collapsed = nets.collapsed(model, region, spec, torch.zeros(2).double())
    domains = root_domains(collapsed, torch.float64)
    bound = Dual(collapsed, torch.float64).bound(domains)
    for i in range(2):
        value, _ = exact_minimum(collapsed, domains.select(torch.tensor([i])), 60)
        assert value == pytest.approx(float(bound[i]), abs=1e-7)


@pytest.mark.parametrize("power", [-40, 60, 100])
def test_no_scale_of_the_weights_makes_a_leaf_look_empty(nets: Any, power: int) -> None:
    """A solver calls badly scaled programs infeasible; a leaf's bound may not depend on that."""
    full = 0
    for seed in range(2):
        model, shape = nets.vector(seed, hidden=(3, 3))
        plain = nn.Sequential(*[m if isinstance(m, nn.Linear) else nn.ReLU() for m in model]).eval()
        region = nets.box(shape, seed, 0.7)
        reference = _leaves(nets, plain, region)
        for depth, layer in enumerate([m for m in plain if isinstance(m, nn.Linear)]):
            layer.weight.data *= 2.0**power
            layer.bias.data *= 2.0 ** (power * (depth + 1))
        scale = 2.0 ** (3 * power)
        for value, expected in zip(_leaves(nets, plain, region), reference, strict=True):
            assert value == pytest.approx(expected * scale, rel=1e-6, abs=1e-6 * scale) or min(value, expected) > 0
            full += expected < 0
    assert full > 0


def _leaves(nets: Any, model: nn.Module, region: Any) -> list[float]:
    """The bounds of all leaves of the first margin."""
    _, _, collapsed = nets.collapsed(model, region, nets.margins(0)[:1], torch.zeros(1).double())
    dual = Dual(collapsed, torch.float64)
    leaves = root_domains(collapsed, torch.float64)
    for tap in range(collapsed.count):
        leaves = split(dual, leaves, torch.full((len(leaves),), tap))
    return [exact_minimum(collapsed, leaves.select(torch.tensor([i])), 60)[0] for i in range(len(leaves))]
