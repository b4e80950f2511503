"""Successive halving."""

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lingraft.work.halving import halving

POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


@given(POINTS, st.integers(1, 4))
def test_half_goes_on_with_more_epochs_and_what_is_dropped_is_beaten(points: list[tuple[int, int]], most: int):
    asked: list[tuple[int, list[int]]] = []

    def try_round(settings: Sequence[int], epochs: int) -> list[tuple[int, tuple[int, int]]]:
        asked.append((epochs, list(settings)))
        return [(setting, points[setting]) for setting in settings]

    def next_epochs(kept: Sequence[tuple[int, int]], epochs: int) -> int | None:
        assert 2 * len(kept) >= len(asked[-1][1])
        return 2 * epochs if len(asked) < most else None

    rounds = halving(range(len(points)), 1, try_round, next_epochs, lambda point: point)
    assert [epochs for epochs, _ in asked] == [2**i for i in range(most)]
    assert asked[0][1] == list(range(len(points)))
    assert [[points[i] for i in settings] for _, settings in asked] == rounds
    for (_, before), (_, after) in itertools.pairwise(asked):
        assert set(after) <= set(before)
        for gone in set(before) - set(after):
            sa, va = points[gone]
            assert any(points[i][0] >= sa and points[i][1] >= va for i in after), "what is better was dropped"
