"""Propagation of several constraints at once: what it shows is true by an exact method, and formulas are decided."""

from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lingraft
from lingraft.solver import conjunction, verifier
from lingraft.solver.bab import Falsified
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.collapse import Collapsed
from lingraft.solver.conjunction import ConjunctionSearch, collapsed_functions
from lingraft.solver.network import Network
from lingraft.solver.region import Region

SEEDS = st.integers(0, 10**6)


def _functions(seed: int, inputs: int = 2, hidden: int = 5, outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)).double().eval()


def _collapsed(model: nn.Module, region: Region) -> tuple[Collapsed, Tensor]:
    network = Network.from_module(model, region.lower.shape)
    found = collapsed_functions(network, region, len(network.nodes) - 1, Budget())
    assert found is not None
    return found


def _shown(model: nn.Module, region: Region) -> bool:
    """Whether the search shows that the outputs are nowhere all 0 or less."""
    functions, loss = _collapsed(model, region)
    search = ConjunctionSearch(functions, loss, torch.arange(functions.p.shape[1]), partial(_witness, model))
    try:
        return search.run(Budget(20.0))
    except Falsified:
        return False


def _witness(model: nn.Module, points: Tensor) -> Tensor | None:
    """The point, if all outputs are 0 or less there."""
    with torch.no_grad():
        return points[0] if bool((model(points) <= 0).all()) else None


def _least(model: nn.Sequential, region: Region) -> float:
    """The least of the largest output over a region of two inputs, on a fine grid."""
    steps = torch.linspace(0, 1, 201, dtype=torch.float64)
    grid = region.lower + torch.cartesian_prod(steps, steps) * (region.upper - region.lower)
    with torch.no_grad():
        return float(model(grid).amax(1).min())


def _moved(model: nn.Sequential, region: Region, above: float) -> nn.Sequential:
    """With outputs whose largest is at least `above` on the grid, and reaches it."""
    least = _least(model, region)
    with torch.no_grad():
        model[2].bias += above - least
    return model


REGION = Region(torch.tensor([-1.0, -0.5]).double(), torch.tensor([1.5, 1.0]).double())


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_points_where_all_hold_are_never_lost(seed: int) -> None:
    assert not _shown(_moved(_functions(seed), REGION, 0.0), REGION)


def test_most_of_what_holds_by_far_is_shown() -> None:
    shown = [_shown(_moved(_functions(seed), REGION, 1.0), REGION) for seed in range(20)]
    assert sum(shown) >= 10


def _formula(clauses: list[list[int]], variables: int) -> nn.Sequential:
    """Outputs that are both 0 or less only where all clauses hold: their violation, and Σ x − relu(2x − 1)."""
    first, last = nn.Linear(variables, len(clauses) + 2 * variables), nn.Linear(len(clauses) + 2 * variables, 2)
    with torch.no_grad():
        for layer in (first, last):
            layer.weight.zero_()
            layer.bias.zero_()
        for row, clause in enumerate(clauses):
            first.bias[row] = 1 - sum(literal < 0 for literal in clause)
            last.weight[0, row] = 1
            for literal in clause:
                first.weight[row, abs(literal) - 1] = -1 if literal > 0 else 1
        for variable in range(variables):
            one, other = (len(clauses) + part * variables + variable for part in (0, 1))
            first.weight[one, variable], first.bias[one], last.weight[1, one] = 2, -1, -1
            first.weight[other, variable], last.weight[1, other] = 1, 1
    return nn.Sequential(first, nn.ReLU(), last).double().eval()


def _satisfiable(clauses: list[list[int]], variables: int) -> bool:
    return any(
        all(any(values[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses)
        for values in product([False, True], repeat=variables)
    )


@settings(max_examples=12, deadline=None)
@given(SEEDS)
def test_formulas_are_decided(seed: int) -> None:
    """Formulas of three variables a clause, about half of which can be fulfilled."""
    variables, count = 6, 26
    generator = torch.Generator().manual_seed(seed)
    clauses = []
    for _ in range(count):
        chosen = torch.randperm(variables, generator=generator)[:3] + 1
        signs = 2 * torch.randint(0, 2, (3,), generator=generator) - 1
        clauses.append((chosen * signs).tolist())
    region = Region(torch.zeros(variables).double(), torch.ones(variables).double())
    model = _formula(clauses, variables)
    search = ConjunctionSearch(*_collapsed(model, region), torch.arange(2), partial(_witness, model))
    if _satisfiable(clauses, variables):
        with pytest.raises(Falsified):
            search.run(Budget(20.0))
    else:
        assert search.run(Budget(20.0))


def test_time_that_is_over_loses_nothing() -> None:
    every = [[a, b, c] for a, b, c in product([1, -1], [2, -2], [3, -3])]
    region = Region(torch.zeros(3).double(), torch.ones(3).double())
    functions, loss = _collapsed(_formula(every, 3), region)
    search = ConjunctionSearch(functions, loss, torch.arange(2), lambda _: None)
    with pytest.raises(Exhausted):
        search.run(Budget(0.0))
    assert len(search.open) == 1
    assert search.run(Budget(20.0))
    assert not ConjunctionSearch(functions, loss, torch.tensor([0]), lambda _: None).run(Budget(20.0))


def test_other_networks_are_left_alone() -> None:
    for layers in ([nn.ReLU(), nn.Linear(4, 4), nn.ReLU()], [nn.Tanh()]):
        model = nn.Sequential(nn.Linear(2, 4), *layers, nn.Linear(4, 2)).double().eval()
        network = Network.from_module(model, (2,))
        assert collapsed_functions(network, REGION, len(network.nodes) - 1, Budget()) is None


def _swapped(low: Tensor, high: Tensor, row: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    return conjunction_limited(low, high, -row, left)


def _too_far(low: Tensor, high: Tensor, row: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    return conjunction_limited(low, high, row, left / 2)


conjunction_limited = conjunction._limited


@pytest.mark.parametrize("wrong", [_swapped, _too_far])
def test_a_wrong_rule_is_noticed(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjunction, "_limited", wrong)
    assert any(_shown(_moved(_functions(seed), REGION, 0.0), REGION) for seed in range(30))


@pytest.mark.parametrize("sign", ["r", "tap_loss"])
def test_a_wrong_constant_is_noticed(sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ConjunctionSearch.__init__

    def changed(self: ConjunctionSearch, *given: object) -> None:
        plain(self, *given)  # type: ignore[arg-type]
        setattr(self, sign, -getattr(self, sign) if sign == "r" else getattr(self, sign) - 0.1)

    monkeypatch.setattr(ConjunctionSearch, "__init__", changed)
    assert any(_shown(_moved(_functions(seed), REGION, 0.0), REGION) for seed in range(30))


@pytest.mark.parametrize(("factor", "variables"), [(1.0, 32), (2.0**-6, 32), (2.0**-40, 24)])
def test_formulas_with_small_outputs_are_propagated_too(
    factor: float, variables: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their margins are multiplied by the verifier; with so many variables only propagation decides them soon."""
    # in a usual first turn a fast machine gets through with the other searches
    monkeypatch.setattr(verifier, "FIRST_TURN", 0.01)
    generator = torch.Generator().manual_seed(3)
    clauses = []
    for _ in range(25 * variables // 4):
        chosen = torch.randperm(variables, generator=generator)[:3] + 1
        signs = 2 * torch.randint(0, 2, (3,), generator=generator) - 1
        clauses.append((chosen * signs).tolist())
    model = _formula(clauses, variables).float()
    with torch.no_grad():
        model[2].weight *= factor
    lingraft.export_onnx(model, tmp_path / "net.onnx", input_shape=(variables,))
    text = [f"(declare-const X_{i} Real) (assert (>= X_{i} 0)) (assert (<= X_{i} 1))" for i in range(variables)]
    text += [f"(declare-const Y_{i} Real) (assert (<= Y_{i} 0))" for i in range(2)]
    (tmp_path / "p.vnnlib").write_text("\n".join(text))
    answer = lingraft.verify_property(tmp_path / "net.onnx", tmp_path / "p.vnnlib", timeout=40, progress=False).answer
    assert (answer.word, answer.stage) == ("unsat", "propagation")
