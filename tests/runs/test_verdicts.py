"""Verdicts as lines of a file."""

import json

from lingraft.runs.verdicts import record_of, result_of
from lingraft.solver.verifier import Result


def test_a_record_gives_the_result_back() -> None:
    first = Result(
        "unknown", "branch", "time", seconds=1.25, crown=[-1.5, float("-inf")], alpha=[-1.0, 0.5], branched=-0.5,
        unstable={"a": 3},
        domains=7, memory=12.5, neurons=9, index=4, label=1, eps=0.1, against=[0, 2], error="why",
    )  # fmt: skip
    record = json.loads(json.dumps(record_of(first), allow_nan=False))
    assert record["crown"] == {"0": -1.5, "2": None}
    assert record["alpha"] == {"0": -1.0, "2": 0.5}
    again = result_of(record)
    assert record_of(again) == record
    assert (again.against, again.alpha, again.branched) == ([0, 2], [-1.0, 0.5], -0.5)
    assert again.unstable == {"a": 3}
    del record["branched"]  # as version 0.1.0 wrote it
    assert result_of(record).branched is None
