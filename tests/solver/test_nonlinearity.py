"""The gap of an activation, against looking at many lines and many points."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.model.activations import KNOWN
from lingraft.solver.nodes import Site
from lingraft.solver.nonlinearity import nonlinearity, unstable

ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "tanh": np.tanh,
}
ENDS = st.floats(-12, 12)


def site(kind: str, grafted: list[bool]) -> Site:
    line = torch.zeros(len(grafted), dtype=torch.float64)
    return Site("site", (len(grafted),), [0], kind, torch.tensor(grafted), line, line)


@pytest.mark.parametrize("kind", ACTIVATIONS)
@given(a=ENDS, b=ENDS)
@settings(max_examples=40, deadline=None)
def test_no_parallel_lines_are_closer(kind: str, a: float, b: float):
    low, high = min(a, b), max(a, b)
    found = float(KNOWN[kind].gap(*torch.tensor([[low], [high]], dtype=torch.float64)))
    z = np.linspace(low, high, 1001)
    rest = ACTIVATIONS[kind](z)[None] - np.linspace(0, 1, 801)[:, None] * z
    spread = rest.max(1) - rest.min(1)
    steps = (high - low) / 800 + 1e-12  # of slope times width, and of z: what the grid may miss
    assert found >= spread.min() - 2 * steps
    assert found <= spread.min() + 1e-8 + steps * (
        kind == "relu"
    )  # the search for the slope ends at 1e-9 of it, times the width


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_from_none_to_the_whole_rise(kind: str):
    ends = torch.tensor([0.0, 1e-3, 1.0, 10.0, 1e4], dtype=torch.float64)
    gap, rise = KNOWN[kind].gap, KNOWN[kind].rise
    gaps = gap(-ends, ends)
    assert gaps[0] == 0
    assert (gaps.diff() > 0).all()
    assert gaps[1] < 1e-9  # as good as linear
    assert gaps[-1] / rise == pytest.approx(1, abs=0.01)
    assert gap(ends + 30, ends + 40).max() < 1e-6  # saturated: constant


def test_what_counts_as_unstable():
    low, high = torch.tensor([[-1.0, -1, 1], [-2, -1, -3]]).double(), torch.tensor([[1.0, 1, 2], [1, 1, -1]]).double()
    relu = site("relu", [False, True, False])
    assert nonlinearity(relu, low, high).tolist() == [[1, 0, 0], [1, 0, 0]]
    smooth = site("sigmoid", [False, True, False])
    score = nonlinearity(smooth, low, high)
    assert (score[:, 1] == 0).all()
    assert ((score[:, [0, 2]] > 0) & (score[:, [0, 2]] < 1)).all()
    assert score[1, 0] > score[0, 0]
    assert unstable(smooth, low, high).tolist() == (score > 0.01).tolist()
    assert unstable(smooth, low * 0.01, high * 0.01).sum() == 0
