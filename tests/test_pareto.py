"""Fronts of things with two figures."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lingraft.pareto import best_half, front

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)


def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a != b and a[0] >= b[0] and a[1] >= b[1]


@given(PAIRS)
def test_the_front_is_what_nothing_beats_once_each(pairs: list[tuple[int, int]]) -> None:
    found = front(pairs, lambda pair: pair)
    assert found == sorted({pair for pair in pairs if not any(beats(other, pair) for other in pairs)})
    assert all(a[1] > b[1] for a, b in itertools.pairwise(found))


@given(PAIRS)
def test_half_is_kept_and_nothing_that_is_dropped_beats_what_is_kept(pairs: list[tuple[int, int]]) -> None:
    things = list(enumerate(pairs))  # of equals each is one
    kept = best_half(things, lambda thing: thing[1])
    assert 2 * len(kept) >= len(things)
    assert kept == sorted(kept)
    assert set(front(pairs, lambda pair: pair)) <= {pair for _, pair in kept}
    for dropped in set(things) - set(kept):
        assert not any(beats(dropped[1], pair) for _, pair in kept)
