"""Which candidate is best, and which are on the front."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.grafting.candidates import RATIOS, Candidate, best, front, require_best

MEASURES = ("count", "harm", "other")
SHARES = st.integers(0, 10).map(lambda n: n / 10)
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.sampled_from(MEASURES),
        st.sampled_from(RATIOS),
        st.just(1),
        SHARES,
        SHARES,
        st.just(0.0),
        st.just(1.0),
    ),
    min_size=1,
)


def candidate(ratio: float, sa: float, va: float, measure: str = "count") -> Candidate:
    return Candidate(measure, ratio, 1, sa, va, 0.0, 1.0)


@given(CANDIDATES, SHARES)
def test_the_best_is_allowed_and_nothing_allowed_is_better(candidates: list[Candidate], min_sa: float):
    found = best(candidates, min_sa)
    allowed = [c for c in candidates if c.sa >= min_sa]
    assert (found is None) == (not allowed)
    if found is not None:
        assert found in allowed
        assert found.va == max(c.va for c in allowed)


@given(CANDIDATES)
def test_the_front_dominates_all_others_and_nothing_of_itself(candidates: list[Candidate]):
    edge = front(candidates)
    for a, b in itertools.pairwise(edge):
        assert a.sa < b.sa
        assert a.va > b.va
    assert all(any(e.sa >= c.sa and e.va >= c.va for e in edge) for c in candidates)


def test_without_a_good_one_the_nearest_is_told():
    with pytest.raises(LingraftError, match=r"99\.00% on validation images: the best is 95\.00% \(count at 10%\)"):
        require_best([candidate(0.25, 0.9, 0.2), candidate(0.1, 0.95, 0.1)], 0.99)
