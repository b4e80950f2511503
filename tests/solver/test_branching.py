"""Splits cover the domain, are made where they can help, and are judged by what their children leave to prove."""

from typing import Any

import pytest
import random_networks as nets
import torch

from lingraft.errors import LingraftError
from lingraft.solver import bab
from lingraft.solver.branching import RULES, choose, register, scores, split, taps_to_split
from lingraft.solver.dual import SMALLEST, Dual, root_domains
from lingraft.solver.network import Network
from lingraft.solver.verifier import Problem, Verifier


def _root(seed: int, kind: str = "relu") -> tuple:
    model, shape = nets.vector(seed, kind, hidden=(6, 5))
    region = nets.box(shape, seed, 0.6)
    network, _, collapsed = nets.collapsed(model, region, nets.margins(0), torch.zeros(2).double())
    dual = Dual(collapsed, torch.float64)
    points = nets.points(region, seed, 200)
    return dual, root_domains(collapsed, torch.float64), nets.tap_values(network, collapsed, points)[0]


@pytest.mark.parametrize("kind", ["relu", "tanh"])
@pytest.mark.parametrize("seed", range(5))
def test_children_cover_the_parent(kind: str, seed: int) -> None:
    dual, domains, z = _root(seed, kind)
    count = len(domains)
    for _ in range(3):
        columns = torch.arange(len(domains))
        tap = choose(dual, domains, dual.evaluate(domains))
        assert bool(dual.splittable(domains)[tap, columns].all())
        children = split(dual, domains, tap)
        assert len(children) == 2 * len(domains)
        for b in range(len(domains)):
            inside = ((z >= domains.lower[:, b, None] - 1e-9) & (z <= domains.upper[:, b, None] + 1e-9)).all(0)
            sides = [
                ((z >= children.lower[:, i, None] - 1e-9) & (z <= children.upper[:, i, None] + 1e-9)).all(0)
                for i in (b, b + len(domains))
            ]
            assert torch.equal(inside, sides[0] | sides[1])
            t = int(tap[b])
            at = 0.0 if kind == "relu" else float(domains.lower[t, b] + domains.upper[t, b]) / 2
            assert float(children.lower[t, b]) == float(children.upper[t, b + len(domains)]) == at
            assert children.split[t, b] == 1
            assert children.split[t, b + len(domains)] == -1
            others = torch.arange(len(z)) != t
            assert torch.equal(children.lower[others, b], domains.lower[others, b])
            assert torch.equal(children.upper[others, b + len(domains)], domains.upper[others, b])
        assert torch.equal(children.margin, domains.margin.repeat(2))
        domains = children
    assert len(domains) == 8 * count


def test_only_taps_that_can_be_split_have_scores() -> None:
    dual, domains, _ = _root(1)
    domains.lower[0] = 0.0
    domains.upper[1] = 0.0
    score = scores(dual, domains, dual.evaluate(domains))
    assert torch.equal(torch.isfinite(score), dual.splittable(domains))
    assert not torch.isfinite(score[:2]).any()
    dual, domains, _ = _root(1, "sigmoid")
    domains.upper[0] = domains.lower[0] + SMALLEST / 2
    score = scores(dual, domains, dual.evaluate(domains))
    assert not torch.isfinite(score[0]).any()
    assert torch.isfinite(score[1:]).all()


def test_the_choice_is_better_than_the_worst() -> None:
    """Over some problems, the chosen taps leave clearly less to prove than the worst ones."""
    chosen_left, worst_left = 0.0, 0.0
    for seed in range(10):
        dual, domains, _ = _root(seed)
        columns = torch.arange(len(domains))

        def left(tap: torch.Tensor) -> torch.Tensor:
            children = dual.bound(split(dual, domains, tap))  # noqa: B023
            return -children.view(2, -1).clamp(max=0).sum(0)

        taps = [torch.full((len(domains),), t) for t in range(len(domains.lower))]
        usable = dual.splittable(domains)
        every = torch.stack([torch.where(usable[t, columns], left(t), -torch.inf) for t in taps])
        chosen_left += float(left(choose(dual, domains, dual.evaluate(domains))).sum())
        worst_left += float(every.amax(0).sum())
    assert chosen_left < 0.8 * worst_left


def test_a_rule_from_outside_splits_and_proves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def first(dual: Any, domains: Any, evaluation: Any) -> torch.Tensor:
        asked.append(len(domains))
        return dual.splittable(domains).int().argmax(0)

    monkeypatch.setitem(RULES, "first", register("first")(first))
    monkeypatch.setattr(bab, "TIGHTENED", 0)  # which would prove all of these before a split
    decided = set()
    for seed in range(3):
        model, shape = nets.vector(seed, "relu", hidden=(6, 5), classes=2)
        region = nets.box(shape, seed, 0.6)
        network, spec = Network.from_module(model, shape), torch.tensor([[1.0, -1.0]]).double()
        least = (model(nets.points(region, seed, 500, model)) @ spec.T).min()
        for offset in (0.02 - least, -0.02 - least):  # hardly true, and hardly false
            problem = Problem((region.lower + region.upper) / 2, region, spec, offset[None].detach())
            verdicts = [Verifier(network, branching=rule).verify(problem, 60).verdict for rule in ("smart", "first")]
            assert verdicts[0] == verdicts[1]
            decided.add(verdicts[0])
    assert asked
    assert decided >= {"verified", "falsified"}
    assert "unknown" not in decided


def test_a_rule_that_names_no_open_tap_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    dual, domains, _ = _root(1)
    domains.lower[0] = 0.0
    monkeypatch.setitem(RULES, "wrong", lambda dual, domains, evaluation: torch.zeros(len(domains), dtype=torch.long))
    with pytest.raises(LingraftError, match="'wrong' chose a tap that cannot be split"):
        taps_to_split("wrong", dual, domains, dual.evaluate(domains))
    with pytest.raises(LingraftError, match=r"unknown branching rule 'smrt'.*'smart'"):
        taps_to_split("smrt", dual, domains, dual.evaluate(domains))
