"""Attacks in a region: in parts they are the same as at once. What they find is tested with the verifier."""

import pytest
import random_networks as nets
import torch
from torch import nn

from lingraft.solver.budget import Budget
from lingraft.solver.falsify import CHUNK, Falsifier
from lingraft.solver.intervals import work
from lingraft.solver.network import Network


def test_the_attack_looks_at_the_clock_between_a_few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network.from_module(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).eval(), (6,))
    assert work(network) == 6 * 5 + 5 * 4 + 2
    region = nets.box((6,), 0, 0.1)
    spec, offset = torch.eye(4).double(), torch.full((4,), 100.0).double()
    whole = Falsifier(network.to(torch.float32), region, spec, offset)
    assert whole.together == CHUNK // work(network)
    monkeypatch.setattr("lingraft.solver.falsify.CHUNK", 3 * work(network))
    budget, looks = Budget(), []
    monkeypatch.setattr(budget, "check_time", lambda: looks.append(1))
    parts = Falsifier(network.to(torch.float32), region, spec, offset, budget=budget)
    assert parts.search(torch.arange(4), 5) is None
    assert len(looks) == 6 * 2, "four images, three at a time, in five steps and at the end"
    # in parts it finds what it finds at once
    low = whole.margins((region.lower + region.upper)[None].float() / 2)[0] - 100 - 0.02
    for attack in (whole, parts):
        attack.offset = -low
    at_once, in_parts = (attack.search(torch.arange(4), 20, 5) for attack in (whole, parts))
    assert (at_once is None) == (in_parts is None)
