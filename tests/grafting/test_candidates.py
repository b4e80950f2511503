"""Which candidate is best, which are on the front, and which comes next."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingraft import LingraftError
from lingraft.grafting.candidates import RATIOS, Candidate, best, front, most, next_setting, require_best

MEASURES = ("count", "harm", "other")
SHARES = st.integers(0, 10).map(lambda n: n / 10)
CANDIDATES = st.lists(
    st.builds(
        Candidate, st.sampled_from(MEASURES), st.sampled_from(RATIOS), SHARES, SHARES, st.just(0.0), st.just(1.0)
    ),
    min_size=1,
)


def candidate(ratio: float, sa: float, va: float, measure: str = "count") -> Candidate:
    return Candidate(measure, ratio, sa, va, 0.0, 1.0)


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


def search(sa_of, va_of, min_sa: float) -> list[Candidate]:
    tried: list[Candidate] = []
    while (setting := next_setting(tried, MEASURES, min_sa)) is not None:
        measure, ratio = setting
        assert (measure, ratio) not in {(c.instability, c.ratio) for c in tried}
        tried.append(candidate(ratio, sa_of(ratio), va_of(measure, ratio), measure))
        assert len(tried) <= most(MEASURES)
    return tried


def test_up_until_too_much_then_around_the_best_then_the_other_measures():
    tried = search(lambda ratio: 1 - ratio / 2, lambda measure, ratio: ratio + (measure == "harm") / 10, 0.72)
    assert [(c.instability, c.ratio) for c in tried] == [
        ("count", 0.2), ("count", 0.4), ("count", 0.6), ("count", 0.3), ("count", 0.5), ("harm", 0.5), ("other", 0.5),
    ]  # fmt: skip
    assert best(tried, 0.72) == tried[-2]


def test_lower_ratios_if_the_lowest_is_too_much():
    tried = search(lambda ratio: 1 - ratio, lambda measure, ratio: ratio, 0.88)
    assert [c.ratio for c in tried] == [0.2, 0.1, 0.1, 0.1]
    tried = search(lambda ratio: 1 - ratio, lambda measure, ratio: ratio, 0.99)
    assert [c.ratio for c in tried] == [0.2, 0.1, 0.05]
    with pytest.raises(LingraftError, match=r"99\.00% on validation images: the best is 95\.00% \(count at 5%\)"):
        require_best(tried, 0.99)


@given(st.floats(0, 1), st.floats(0, 1), st.lists(SHARES, min_size=3, max_size=3), SHARES)
def test_every_search_ends(steep: float, lost: float, gains: list[float], min_sa: float):
    def va(measure: str, ratio: float) -> float:
        return gains[MEASURES.index(measure)] * ratio * (1 - ratio)

    assert search(lambda ratio: 1 - lost - steep * ratio, va, min_sa)
