"""VA, UNR, Time and the rest, counted by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingraft.runs.summary import VERDICTS, summarize, va_curve
from lingraft.solver.verifier import Result


def result(verdict: str, stage: str, seconds: float, unstable: int | None = None, reason: str | None = None) -> Result:
    counts = {} if unstable is None else {"a": unstable - 5, "b": 5}
    return Result(verdict, stage, reason, seconds=seconds, unstable=counts, neurons=100, domains=3)


RESULTS = [
    result("verified", "crown", 0.15, 10),
    result("verified", "branch", 4.0, 30),
    result("verified", "intervals", 0.05, 20),
    result("falsified", "attack", 0.5),
    result("falsified", "branch", 7.0, 40),
    result("misclassified", "forward", 0.001),
    result("unknown", "branch", 10.1, 50, "time"),
    result("unknown", "", 3.0, None, "crashed"),
]


def test_figures_by_hand() -> None:
    summary = summarize(RESULTS, 10.0)
    assert (summary.images, summary.verified, summary.falsified) == (8, 3, 2)
    assert (summary.unknown, summary.misclassified, summary.domains) == (2, 1, 24)
    assert (summary.va, summary.falsified_share, summary.unknown_share, summary.misclassified_share) == (
        3 / 8,
        2 / 8,
        2 / 8,
        1 / 8,
    )
    assert summary.unr == pytest.approx((0.1 + 0.3 + 0.2 + 0.4 + 0.5) / 5)
    assert summary.unr_images == 5
    # neither the misclassified nor the attacked one; the one that branching falsified counts
    assert summary.time == pytest.approx((0.15 + 4 + 0.05 + 7 + 10.1 + 3) / 6)
    assert summary.time_images == 6
    assert summary.unknown_reasons == {"crashed": 1, "time": 1}
    assert summary.stages == {"attack": 1, "branch": 2, "crown": 1, "forward": 1, "intervals": 1}
    assert summary.curve == [
        (0.1, 1 / 8),
        (0.2, 2 / 8),
        (0.5, 2 / 8),
        (1.0, 2 / 8),
        (2.0, 2 / 8),
        (5.0, 3 / 8),
        (10.0, 3 / 8),
    ]
    json.dumps(summary.as_dict(), allow_nan=False)


def test_nothing_to_sum_up() -> None:
    summary = summarize([], 10.0)
    assert (summary.images, summary.va, summary.unr, summary.time, summary.curve) == (0, None, None, None, [])
    wrong = summarize([result("misclassified", "forward", 0.0)], 10.0)
    assert (wrong.va, wrong.unr, wrong.time) == (0.0, None, None)


results = st.builds(
    result,
    st.sampled_from(VERDICTS),
    st.sampled_from(["attack", "crown", "branch"]),
    st.floats(0, 11),
    st.none() | st.integers(5, 100),
)


@given(st.lists(results, min_size=1, max_size=20))
def test_shares_add_up_and_more_time_never_hurts(found: list[Result]) -> None:
    summary = summarize(found, 10.0)
    parts = (summary.va, summary.falsified_share, summary.unknown_share, summary.misclassified_share)
    assert sum(part for part in parts if part is not None) == pytest.approx(1)
    shares = [share for _, share in summary.curve]
    assert shares == sorted(shares)
    assert shares[-1] == summary.va
    assert va_curve(found, [20.0])[0][1] == summarize(found, 20.0).va
    assert summary.va == sum(r.verdict == "verified" and r.seconds <= 10 for r in found) / len(found)


def test_what_came_after_the_limit_is_unknown_for_want_of_time() -> None:
    late = [result("verified", "branch", 10.05, 10), result("falsified", "branch", 10.05), RESULTS[0]]
    summary = summarize(late, 10.0)
    assert (summary.verified, summary.falsified, summary.unknown) == (1, 0, 2)
    assert summary.unknown_reasons == {"time": 2}
    assert summary.time == pytest.approx((10.05 + 10.05 + 0.15) / 3)
    assert [r.verdict for r in late] == ["verified", "falsified", "verified"], "the results stay what they are"
    assert summarize(late, 10.1).unknown == 0
