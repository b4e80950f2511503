"""The public names of lingraft."""

import inspect
from dataclasses import fields

import pytest
import torch
from torch import nn

import lingraft
from lingraft.solver.verifier import Result


@pytest.mark.parametrize("name", sorted(set(lingraft.__all__) - {"__version__", "LingraftError"}))
def test_every_public_name_is_there_documented_and_typed(name):
    public = getattr(lingraft, name)
    assert inspect.getdoc(public)
    signature = inspect.signature(public)
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())


def test_names_are_the_ones_that_type_checkers_see():
    source = inspect.getsource(lingraft)
    declared = {line.split(" as ")[1] for line in source.splitlines() if line.startswith("    from ")}
    assert declared == set(lingraft.__all__) - {"__version__", "LingraftError"}


def test_the_public_names() -> None:
    assert {"verify", "bounds", "Region"} <= set(lingraft.__all__)
    region = lingraft.Region.ball(torch.full((3,), 0.5), 0.1)
    (pair,) = lingraft.bounds(nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval(), region).values()
    assert pair[0].shape == (2,)
    assert {"verdict", "seconds", "stage", "witness", "domains", "memory"} <= {f.name for f in fields(Result)}
