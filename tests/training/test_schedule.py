"""Learning rate schedules."""

import pytest

from lingraft import LingraftError
from lingraft.training import make_schedule


def test_step_is_the_paper_s() -> None:
    factor = make_schedule("step", 200)
    times = [0, 99.99, 100, 149.9, 150, 199.9]
    assert [round(factor(time), 6) for time in times] == [1, 1, 0.1, 0.1, 0.01, 0.01]


def test_step_with_milestones() -> None:
    factor = make_schedule("step", 10, (3,))
    assert [round(factor(time), 6) for time in (2.9, 3, 9)] == [1, 0.1, 0.1]


def test_one_cycle_rises_to_1_and_falls_to_0() -> None:
    factor = make_schedule("one-cycle", 10)
    assert factor(0) == 0
    assert factor(4) == 1
    assert factor(2) == pytest.approx(0.5)
    assert factor(7) == pytest.approx(0.5)
    assert factor(10) == 0


def test_cosine_changes_once_an_epoch() -> None:
    factor = make_schedule("cosine", 4)
    assert factor(0) == factor(0.9) == 1
    assert factor(2) == pytest.approx(0.5)
    assert factor(3.5) == pytest.approx(0.1464, abs=1e-4)


@pytest.mark.parametrize("name", ["step", "one-cycle", "cosine"])
def test_a_single_epoch_works(name: str) -> None:
    factor = make_schedule(name, 1)
    assert max(factor(0.1 * tenth) for tenth in range(10)) > 0


def test_step_with_one_epoch_starts_at_the_full_rate() -> None:
    assert make_schedule("step", 1)(0.5) == 1


def test_milestones_belong_to_step() -> None:
    with pytest.raises(LingraftError, match="milestones"):
        make_schedule("cosine", 10, (5,))


def test_milestones_are_epochs() -> None:
    with pytest.raises(LingraftError, match="from 1"):
        make_schedule("step", 10, (0, 5))


def test_unknown_name() -> None:
    with pytest.raises(LingraftError, match="one-cycle"):
        make_schedule("onecycle", 10)
