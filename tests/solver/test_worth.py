"""What work on a domain must gain, from what splits were seen to gain and to cost."""

from collections.abc import Callable

import pytest
import torch

from lingraft.solver.worth import DEEPEST, LONGEST, LONGEST_PAUSE, STEPS_OF_A_SPLIT, Batch, Worth, need


def _measured(gain: float, split_seconds: float, step_seconds: float) -> Worth:
    worth = Worth(64)
    for _ in range(5):
        worth.splits.add(10, 10 * split_seconds, 10 * gain)
        worth.batch.stepped(4, 4 * step_seconds)
    return worth


def test_the_need_of_a_domain() -> None:
    assert need(torch.tensor([-2.0, 0.0, 3.0])).tolist() == [2, 0, 0]


def test_a_tree_takes_twice_as_long_for_each_split_that_is_missing() -> None:
    worth = _measured(gain=0.5, split_seconds=2.0, step_seconds=0.1)
    seconds = worth.seconds(torch.tensor([1.0, -0.5, -1.0, -1.5, -500.0]))
    torch.testing.assert_close(seconds, torch.tensor([0, 2, 6, 14, 2 * (2**DEEPEST - 1)], dtype=torch.float64))


def test_a_step_is_asked_to_save_what_it_costs() -> None:
    """A step that gains just what is asked for saves about its own time; more is asked for near 0 than far from it."""
    worth = _measured(gain=0.5, split_seconds=1.0, step_seconds=1e-3)
    bounds = torch.tensor([-0.5, -1.0, -2.0, -3.0], dtype=torch.float64)
    least = worth.step(bounds)
    gain = torch.full_like(bounds, 0.5)
    saved = worth.seconds(bounds, gain) - worth.seconds(bounds + least, gain)
    torch.testing.assert_close(saved, torch.full_like(saved, 1e-3), rtol=0.01, atol=0)
    assert bool((least.diff() < 0).all())
    dearer = _measured(gain=0.5, split_seconds=1.0, step_seconds=1e-2).step(bounds)
    torch.testing.assert_close(dearer, 10 * least)


def test_before_anything_is_measured_a_split_is_taken_to_prove_a_domain() -> None:
    least = Worth(64).step(torch.tensor([-1.0, -3.0]))
    torch.testing.assert_close(least, torch.tensor([1.0, 3.0]) / (STEPS_OF_A_SPLIT * 2 * torch.log(torch.tensor(2.0))))


@pytest.mark.parametrize("gain", [0.0, -1.0], ids=["nothing", "less than nothing"])
def test_splits_that_gain_nothing(gain: float) -> None:
    """Then all trees are as deep as they can be; nothing is divided by 0."""
    worth = _measured(gain, 1.0, 1e-3)
    bounds = torch.tensor([0.0, -1e-30, -1.0, -1e30])
    assert bool(torch.isfinite(worth.step(bounds)).all())
    assert worth.seconds(bounds)[2] == 2**DEEPEST - 1


def test_clipping_rests_while_it_costs_more_than_it_saves_and_comes_back() -> None:
    worth = _measured(gain=0.5, split_seconds=1.0, step_seconds=1e-3)
    before = torch.full((4,), -1.0)
    rests = []
    for _ in range(6):
        assert worth.clipping.over()
        worth.clipped(before, before + 1e-4, seconds=1.0)
        rests.append(worth.clipping.waiting)
        while worth.clipping.waiting:
            assert not worth.clipping.over()
    assert rests == [1, 3, 7, 15, LONGEST_PAUSE, LONGEST_PAUSE]
    for _ in range(20):
        worth.clipped(before, before + 0.9, seconds=1.0)
    assert worth.clipping.waiting == 0
    assert worth.clipping.over()


def test_few_domains_that_need_many_splits_are_split_several_times_at_once() -> None:
    worth = Worth(64)
    far = torch.tensor([-4.0, -3.0])
    assert worth.levels(far) == 1, "nothing was measured"
    worth = _measured(gain=0.5, split_seconds=1.0, step_seconds=1e-3)
    assert worth.batch.size == 8
    assert worth.levels(far) == 3, "two domains make eight halves of halves, sixteen parts in all"
    assert worth.levels(far[:1]) == 4
    assert worth.levels(torch.tensor([-4.0, -1.2])) == 2, "by what the one needs that needs least"
    assert worth.levels(torch.tensor([-4.0, 0.0])) == 1
    assert worth.levels(far.repeat(4)) == 1, "the batch is full"


def test_as_many_taps_are_tightened_as_it_takes() -> None:
    """By what rounds gained for each unit that the relaxations of their taps cost."""
    worth = Worth(64)
    scores = torch.tensor([1.0, 8.0, -torch.inf, 4.0, 2.0])
    assert worth.to_tighten(scores, torch.tensor([-0.1]), most=9) == 4, "nothing was measured, and one cannot be split"
    assert worth.to_tighten(scores, torch.tensor([-0.1]), most=3) == 3
    worth.rounds.add(10.0, 1.0, gain=5.0)
    needs = {0.1: 1, 1.9: 1, 2.1: 2, 3.1: 3, 50.0: 4}
    assert {n: worth.to_tighten(scores, torch.tensor([-n]), most=9) for n in needs} == needs
    assert worth.to_tighten(scores.new_full((3,), -torch.inf), torch.tensor([-1.0]), most=9) == 0


def _work(batch: Batch, step: Callable[[int], float], steps: int = 10) -> None:
    """One full batch, `step(count)` being the seconds of a step of so many halves."""
    batch.stepped(2 * batch.size, step(2 * batch.size))
    batch.add(steps * step(2 * batch.size))


def test_batches_grow_while_that_makes_steps_cheaper() -> None:
    """Here a step costs 1 ms and 0.1 ms a domain until the cache is full at 128, where they become dearer."""
    batch, sizes = Batch(1024), []
    for _ in range(12):
        sizes.append(batch.size)
        _work(batch, lambda count: 1e-3 + count * (1e-4 if count <= 128 else 2e-4))
    assert sizes[:5] == [8, 16, 32, 64, 128]
    assert set(sizes[5:]) == {64}, "and no larger one is tried again"


def test_a_batch_that_is_not_full_says_nothing_of_full_ones() -> None:
    batch = Batch(1024)
    for count in (1, 2, 5, 9):
        batch.stepped(count, 1e-3)
        batch.add(1e-3)
    assert batch.size == 8


def test_one_slow_step_among_others_is_an_accident() -> None:
    batch = Batch(1024)
    for seconds in (1e-3, 1e-3, 1.0):
        batch.stepped(16, seconds)
    batch.stepped(8, 1e-3)
    batch.add(0.1)
    assert batch.size == 16


def test_batches_take_no_longer_than_one_can_wait() -> None:
    batch = Batch(1024)
    for _ in range(12):
        _work(batch, lambda count: 0.1 * count**0.9, steps=1)
    assert 0.1 * (2 * batch.size) ** 0.9 < LONGEST


def test_no_more_domains_than_fit() -> None:
    batch = Batch(20)
    for _ in range(5):
        _work(batch, lambda _: 1e-3)
    assert batch.size == 20


def test_the_rest_of_a_batch_does_not_stand_for_half_of_it() -> None:
    """A step costs 1 ms, whatever the number: 15 of 16 halves, and 31 of 32, cost as much each as all of them."""
    batch = Batch(1024)
    for _ in range(4):
        for count in (2 * batch.size, 2 * batch.size - 1):
            batch.stepped(count, 1e-3)
        batch.stepped(batch.size - 1, 1e-3)
        batch.add(1e-2)
    assert batch.size == 128
