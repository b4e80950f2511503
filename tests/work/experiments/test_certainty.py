"""Intervals and paired tests, against the formulas written out."""

import math
from itertools import combinations
from typing import Any

import pytest

from lingraft.report.study import Verification
from lingraft.solver.verifier import Result
from lingraft.work.experiments.certainty import compare, mean_unstable, shared_images, wilson


def verification(verdicts: str, unstable: dict[int, int] | None = None, seconds: float = 1.0) -> Verification:
    """v: verified, u: unknown, f: falsified, one letter an image; the limit is 2 s."""
    names = {"v": "verified", "u": "unknown", "f": "falsified"}
    results = [
        Result(
            names[letter], "bab", seconds=seconds, index=i, unstable={"relu": (unstable or {}).get(i, 0)}, neurons=10
        )
        for i, letter in enumerate(verdicts)
    ]
    for result in results:
        if unstable is None or result.index not in unstable:
            result.unstable = {}
    records: list[dict[str, Any]] = [{"timeout": 2.0} for _ in results]
    return Verification("digits", 0.1, results, records)


@pytest.mark.parametrize(("count", "images"), [(0, 10), (41, 100), (100, 200), (7, 7)])
def test_wilsons_interval_is_where_the_normal_test_of_a_share_just_passes(count: int, images: int):
    low, high = (end / 100 for end in wilson(count, images))
    z, share = 1.959964, count / images
    for end in (low, high):
        if 0 < end < 1:  # (p̂ − p)² = z²·p(1 − p)/n
            assert abs(share - end) == pytest.approx(z * math.sqrt(end * (1 - end) / images), abs=2e-4)
    assert low <= share <= high


def test_rows_are_compared_on_the_images_of_both():
    this, other = verification("vvvvvuuf"), verification("vuuuvvu")
    found = compare("Baseline", [this], [other])
    assert (found.images, found.both, found.only_this, found.only_other) == (7, 2, 3, 1)
    # of the 4 images that only one verifies, 3 or more on one side: 2 · (4 + 1) of 16 ways
    ways = sum(len(list(combinations(range(4), k))) for k in (0, 1, 3, 4))
    assert found.p == pytest.approx(ways / 16)


def test_rows_that_agree_do_not_differ():
    same = verification("vuvf")
    assert compare("other", [same, same], [same, same]).p == 1.0
    assert compare("other", [same, same], [same, same]).both == 4


def test_a_verdict_after_the_limit_is_none():
    late, good = verification("vv", seconds=3.0), verification("vv")
    found = compare("other", [late], [good])
    assert (found.both, found.only_other) == (0, 2)


def test_unstable_neurons_are_counted_over_the_images_that_all_rows_bounded():
    one, two = verification("vvv", {0: 1, 1: 3}), verification("vvv", {1: 5, 2: 7})
    images = shared_images([one, two])
    assert images == {1}
    assert (mean_unstable(one, images), mean_unstable(two, images)) == (0.3, 0.5)
    assert mean_unstable(one, set()) is None
