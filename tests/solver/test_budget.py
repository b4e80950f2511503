"""The clock is looked at wherever work can be long, and what it interrupts is never a proof."""

import math
import time
from collections import Counter

import pytest
import random_networks as nets
import torch
from torch import nn

from lingraft.solver.ascent import improve
from lingraft.solver.bounds import bound_sites, margin_crown
from lingraft.solver.budget import Budget, Exhausted, free_memory
from lingraft.solver.clip import Forms
from lingraft.solver.collapse import collapse
from lingraft.solver.dual import Dual, root_domains
from lingraft.solver.facets import Above, fit
from lingraft.solver.falsify import Falsifier
from lingraft.solver.network import Network
from lingraft.solver.request import Request
from lingraft.solver.tighten import tighten
from lingraft.solver.verifier import Verifier


class Counted(Budget):
    """Time is over at the `most`-th look at the clock."""

    def __init__(self, most: float = math.inf):
        super().__init__()
        self.looks, self.most = 0, most

    def check_time(self) -> None:
        self.looks += 1
        if self.looks >= self.most:
            raise Exhausted("time")


def test_every_part_of_the_solver_stops_when_the_time_is_over() -> None:
    model, region, spec, offset, collapsed, *_ = nets.partly_negative(1, "relu", 0.1)
    network = Network.from_module(model, region.lower.shape)
    found = bound_sites(network, region, Budget())
    dual, domains = Dual(collapsed, torch.float64), root_domains(collapsed, torch.float64)
    over = Budget(0.0)
    late = Dual(collapsed, torch.float64)
    late.budget = over
    above, forms = Above(collapsed), Forms(collapsed, dual, domains.exactly())
    forms.budget = over
    assert above.count
    assert forms.groups
    attack = Falsifier(network.to(torch.float32), region, spec, offset + 100, budget=over)
    for do in (
        lambda: bound_sites(network, region, over, "intervals"),
        lambda: bound_sites(network, region, over),
        lambda: margin_crown(network, found, spec, offset, budget=over),
        lambda: collapse(network, found, spec, offset, over),
        lambda: Dual(collapsed, torch.float64, over),
        lambda: late.bound(domains),
        lambda: improve(late, domains, 1),
        lambda: Above(collapsed, over),
        lambda: fit(above, late, domains),
        lambda: tighten(late, late, domains, torch.arange(1), 1),
        lambda: Forms(collapsed, late, domains.exactly()),
        lambda: forms.clip(domains, dual.bounded(domains.exactly())),
        lambda: attack.search(torch.tensor([0]), 1),
    ):
        with pytest.raises(Exhausted, match="time"):
            do()


@pytest.mark.slow
@pytest.mark.parametrize("above", [0.05, -0.05])
def test_whatever_is_interrupted_is_not_a_proof(monkeypatch: pytest.MonkeyPatch, above: float) -> None:
    """A search that ends at some look at the clock, early or late: unknown, with the stage that it was in."""
    request = nets.branchy(1, above)
    verifier, problem = Verifier(request.network), request.problem(0)
    whole = Counted()
    monkeypatch.setattr("lingraft.solver.verifier.Budget", lambda *_: whole)
    expected = verifier.verify(problem, 60).verdict
    assert expected == ("verified" if above > 0 else "falsified")
    stages: Counter[str] = Counter()
    for most in sorted({round(whole.looks ** (n / 24)) for n in range(25)}):
        budget = Counted(most)
        monkeypatch.setattr("lingraft.solver.verifier.Budget", lambda *_, budget=budget: budget)
        result = verifier.verify(problem, 60, prove=True)
        if budget.looks < most:  # batches adapt to the machine, so that there may be fewer looks than before
            assert result.verdict == expected
            continue
        assert (result.verdict, result.reason, result.proof) == ("unknown", "time", None), most
        assert verifier.stage == result.stage
        stages[result.stage] += 1
    assert set(stages) >= ({"attack", "crown", "alpha", "branch"} if above > 0 else {"attack"}), stages


@pytest.mark.slow
def test_a_large_network_keeps_its_limit_in_this_process() -> None:
    """Its first attack alone, nine images in eleven steps, takes several times as long."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    ).eval()  # fmt: skip
    image = torch.rand(1, 3, 32, 32)
    request = Request(model, image, model(image).argmax(1), eps=1e-6)
    verifier, begun = Verifier(request.network), time.process_time()
    result = verifier.verify(request.problem(0), 0.5)
    spent = time.process_time() - begun  # whatever else the machine does
    assert (result.verdict, result.reason) == ("unknown", "time")
    assert result.stage in ("attack", "intervals", "crown")
    assert spent <= 0.5 * 1.02 + 1


def test_memory_of_a_system_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert free_memory() > 0
    monkeypatch.delattr("os.sysconf")
    assert free_memory() > 1e9
