"""A network trained on digits, plain and grafted: what is proven, between what attacks leave and what intervals show."""

from typing import Any

import pytest
import torch
from torch import nn

import lingraft
from lingraft.attack import find_unbroken
from lingraft.data import load
from lingraft.runs import Run
from lingraft.solver.bounds import bound_sites, margin_intervals
from lingraft.solver.budget import Budget
from lingraft.solver.request import Request
from lingraft.work import demo

pytestmark = pytest.mark.slow

#: Images, and seconds for each: plain networks need minutes for most of them at ε = 0.1, grafted ones a moment.
IMAGES, TIMEOUT = 20, 0.5


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, nn.Module]:
    """The demo's network, trained against attacks, and the same with four fifths of its neurons grafted."""
    folder, cpu = tmp_path_factory.mktemp("digits"), torch.device("cpu")
    plain = demo.train_network(Run(folder / "plain"), demo.EPS, 0, cpu)
    grafted = demo.graft_network(Run(folder / "plain"), Run(folder / "grafted"), plain, 0.8, 0, cpu)
    return {"plain": plain.eval(), "grafted": grafted.eval()}


def _accuracies(model: nn.Module, eps: float) -> tuple[set[int], set[int], set[int]]:
    """Which images are certified by intervals, which are proven, and which PGD does not break."""
    data = load("digits", "test").take(IMAGES)
    images, labels = data.pixels(), data.labels
    request = Request(model, images, labels, eps=eps)
    certified = set()
    for i in range(IMAGES):
        found = bound_sites(request.network, request.region(i), Budget(), "intervals")
        if bool((margin_intervals(found, *request.margins(i)) > 1e-5).all()):
            certified.add(i)
    found_ = lingraft.verify(model, images, labels, eps=eps, timeout=TIMEOUT, workers=0)
    proven = {result.index for result in found_ if result.verdict == "verified"}
    with torch.no_grad():
        right = model(images).argmax(1) == labels
    standing = find_unbroken(model, data, right, eps, steps=30, restarts=5)
    return certified, proven, set(standing.nonzero().flatten().tolist())


def test_grafting_makes_more_provable(networks: dict[str, nn.Module]) -> None:
    shares: dict[str, Any] = {}
    for name, model in networks.items():
        certified, proven, standing = _accuracies(model, demo.EPS)
        assert certified <= proven <= standing, name
        shares[name] = len(proven) / IMAGES
    assert shares["grafted"] > shares["plain"], shares
    assert shares["grafted"] > 0.2, shares


def test_intervals_certify_some_of_what_is_proven(networks: dict[str, nn.Module]) -> None:
    """At a radius that is small enough for intervals to prove something, each step proves more."""
    total = [0, 0, 0]
    for model in networks.values():
        certified, proven, standing = _accuracies(model, 0.002)
        assert certified <= proven <= standing
        total = [a + len(b) for a, b in zip(total, (certified, proven, standing), strict=True)]
    assert 0 < total[0] < total[1] <= total[2]
