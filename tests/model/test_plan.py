"""Printing what a mask will do, and keeping masks in files."""

import io

import pytest
import torch
from rich.console import Console

import lingraft
from lingraft import LingraftError
from lingraft.model import zoo
from lingraft.model.plan import plan


@pytest.fixture
def sites():
    return lingraft.sites(zoo.build("digits-cnn"), (1, 8, 8))


def test_a_plan_tells_how_much_is_grafted_where(sites):
    mask = {"2": torch.zeros(16, 8, 8, dtype=torch.bool), "7": torch.ones(64, dtype=torch.bool)}
    mask["2"][:4] = True
    planned = plan(sites, mask)
    assert (planned.neurons, planned.grafted) == (1600, 320)
    lines = [line.split() for line in str(planned).splitlines()]
    assert lines[1:] == [
        ["2", "relu", "16×8×8", "1,024", "256", "25.0%"],
        ["4", "relu", "32×4×4", "512", "0", "0.0%"],
        ["7", "relu", "64", "64", "64", "100.0%"],
        ["all", "1,600", "320", "20.0%"],
    ]
    shown = io.StringIO()
    Console(width=100, file=shown).print(planned)
    assert "100.0%" in shown.getvalue()
    assert planned.as_dict()["sites"][0] == {"name": "2", "shape": [16, 8, 8], "neurons": 1024, "grafted": 256}


def test_a_mask_that_does_not_fit_is_refused(sites):
    with pytest.raises(LingraftError, match=r"'7'.*\(63,\).*\(64,\)"):
        plan(sites, {"7": torch.ones(63, dtype=torch.bool)})
    with pytest.raises(LingraftError, match="unknown site '8'"):
        plan(sites, {"8": torch.ones(64, dtype=torch.bool)})
