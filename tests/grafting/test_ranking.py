"""Ranks over all neurons of a network."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import rankdata

from lingraft import LingraftError
from lingraft.grafting import rank


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=4))
def test_ranks_are_mean_ranks_over_all_sites(values):
    raw = {f"site{i}": torch.tensor(row, dtype=torch.float64) for i, row in enumerate(values)}
    ranks = rank(raw)
    flat = np.concatenate(values)
    expected = (rankdata(flat, method="average") - 1) / max(1, len(flat) - 1) if len(flat) > 1 else [0.5]
    np.testing.assert_allclose(torch.cat(list(ranks.values())).numpy(), expected, atol=1e-12)
    assert [r.shape for r in ranks.values()] == [r.shape for r in raw.values()]


def test_lowest_is_0_highest_is_1_and_all_alike_is_the_middle():
    ranks = rank({"a": torch.tensor([[3.0, 1.0]]), "b": torch.tensor([2.0])})
    assert ranks["a"].tolist() == [[1.0, 0.0]]
    assert ranks["b"].tolist() == [0.5]
    assert rank({"a": torch.ones(4)})["a"].tolist() == [0.5] * 4


def test_nan_and_nothing_are_refused():
    with pytest.raises(LingraftError, match="NaN"):
        rank({"a": torch.tensor([1.0, torch.nan])})
    with pytest.raises(LingraftError, match="no sites"):
        rank({})
    with pytest.raises(LingraftError, match="'b' has no neurons"):
        rank({"a": torch.ones(2), "b": torch.ones(0)})
