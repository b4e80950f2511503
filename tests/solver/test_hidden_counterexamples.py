"""Where a counterexample is hidden, nothing is ever verified, with attacks or without; with enough time it is found."""

import dataclasses

import pytest
import torch
from hidden_spikes import DEPTH, OPERATIONS, POINT, Spike

from lingraft.model.activations import KNOWN, PARTS, Activation, Lines
from lingraft.model.operations import KNOWN as ALL_OPERATIONS
from lingraft.solver.falsify import Falsifier
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.verifier import Problem, Result, Verifier

#: Seconds for a network, without attacks and with them.
SHORT, LONG = 0.1, 60.0


def verdict(name: str, sharp: float, seconds: float) -> Result:
    model = Spike(name, sharp)
    at = model(torch.tensor([POINT], dtype=torch.float64))[0].detach()
    assert float(at[0] - at[1]) == pytest.approx(-DEPTH)
    box = Region(torch.full((2,), -1.0).double(), torch.full((2,), 1.0).double())
    margin = torch.tensor([[1.0, -1.0]]).double(), torch.zeros(1).double()
    problem = Problem(torch.tensor([-0.9, 0.9]), box, *margin)
    return Verifier(Network.from_module(model, (2,))).verify(problem, seconds)


@pytest.fixture
def no_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Falsifier, "search", lambda *args: None)
    monkeypatch.setattr(Falsifier, "descend", lambda *args, **named: None)


@pytest.fixture
def no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that the search itself comes to are looked at, and nothing goes on from there."""
    look = Falsifier.descend
    monkeypatch.setattr(Falsifier, "search", lambda *args: None)
    monkeypatch.setattr(Falsifier, "descend", lambda self, images, margins, steps: look(self, images, margins, 0))


def test_there_is_one_for_every_activation_every_function_and_every_operation() -> None:
    assert KNOWN.keys() <= OPERATIONS.keys()
    assert ALL_OPERATIONS.keys() <= OPERATIONS.keys()
    assert {name.replace("_", " ") for name in PARTS} <= OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("no_attack")
def test_never_verified_without_attacks(name: str) -> None:
    assert verdict(name, 40.0, SHORT).verdict == "unknown"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_found_with_enough_time(name: str) -> None:
    assert verdict(name, 0.3, LONG).verdict == "falsified"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("no_gradients")
def test_a_narrow_one_is_found_by_the_search_alone(name: str) -> None:
    assert verdict(name, 40.0, LONG).verdict == "falsified"


@pytest.mark.parametrize("name", ["sine", "exponential", "square", "sign"])
@pytest.mark.usefixtures("no_attack")
def test_a_record_that_is_wrong_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that calls the function a line, that of its ends, hides the spike."""
    monkeypatch.setitem(PARTS, name, straight(PARTS[name]))
    assert verdict(name, 40.0, LONG).verdict == "verified"


def straight(record: Activation) -> Activation:
    def lines(lower: torch.Tensor, upper: torch.Tensor) -> Lines:
        at = record.value(lower), record.value(upper)
        slope = (at[1] - at[0]) / (upper - lower).clamp(min=1e-9)
        return Lines(slope, at[0] - slope * lower, slope, at[0] - slope * lower)

    return dataclasses.replace(record, lines=lines)
