"""Choosing neurons from ranks."""

import itertools
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from lingraft import LingraftError
from lingraft.grafting import GAMMAS, GradualSchedule, rank, select

RAW = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)
STAGES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, math.inf]), min_size=1, max_size=5)


def ranks_of(raw: list[tuple[int, int]], cut: int = 0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Ranks, with many ties, of a network with two sites (one if `cut` leaves nothing)."""
    both = []
    for which in (0, 1):
        values = torch.tensor([pair[which] for pair in raw], dtype=torch.float64)
        parts = {"a": values[: len(raw) - cut], "b": values[len(raw) - cut :]}
        both.append(rank({name: part for name, part in parts.items() if len(part)}))
    return both[0], both[1]


def naive(unstable: list[float], significant: list[float], count: int, gammas: list[float]) -> set[int]:
    """One neuron at a time."""
    chosen: list[int] = []
    for stage, gamma in enumerate(gammas):
        while len(chosen) < round(count * (stage + 1) / len(gammas)):
            left = [i for i in range(len(unstable)) if i not in chosen]

            def value(i: int, gamma: float = gamma) -> float:
                return unstable[i] if math.isinf(gamma) else gamma * unstable[i] - significant[i]

            chosen.append(max(left, key=lambda i: (value(i), -i)))
    return set(chosen)


@settings(deadline=None)
@given(raw=RAW, ratio=st.floats(0, 1), gammas=STAGES, data=st.data())
def test_exactly_the_right_number_and_the_right_ones(raw, ratio, gammas, data):
    unstable, significant = ranks_of(raw, cut=data.draw(st.integers(0, len(raw) - 1)))
    mask = select(unstable, significant, ratio, gammas)
    flat = torch.cat(list(mask.values()))
    assert int(flat.sum()) == round(ratio * len(raw))
    assert {name: chosen.shape for name, chosen in mask.items()} == {n: r.shape for n, r in unstable.items()}
    expected = naive(
        torch.cat(list(unstable.values())).tolist(),
        torch.cat(list(significant.values())).tolist(),
        round(ratio * len(raw)),
        gammas,
    )
    assert set(flat.nonzero().flatten().tolist()) == expected


@settings(deadline=None)
@given(raw=RAW, ratios=st.lists(st.floats(0, 1), min_size=2, max_size=4), gammas=STAGES)
def test_step_by_step_ends_with_the_same_neurons_and_takes_none_back(raw, ratios, gammas):
    unstable, significant = ranks_of(raw)
    *steps, last = sorted(ratios)
    mask = None
    for ratio in [*steps, last]:
        more = select(unstable, significant, ratio, gammas, mask, of_ratio=last)
        assert mask is None or all((more[name] | ~chosen).all() for name, chosen in mask.items())
        mask = more
    assert all(torch.equal(mask[n], chosen) for n, chosen in select(unstable, significant, last, gammas).items())


@settings(deadline=None)
@given(raw=RAW, ratio=st.floats(0, 1), seed=st.integers(0, 99))
def test_neurons_that_are_grafted_already_stay_and_count(raw, ratio, seed):
    unstable, significant = ranks_of(raw)
    share = torch.rand((), generator=torch.Generator().manual_seed(seed))
    present = {
        n: torch.rand(r.shape, generator=torch.Generator().manual_seed(seed)) < share for n, r in unstable.items()
    }
    already = int(sum(mask.sum() for mask in present.values()))
    if already > round(ratio * len(raw)):
        with pytest.raises(LingraftError, match="grafted already"):
            select(unstable, significant, ratio, GAMMAS, present)
        return
    mask = select(unstable, significant, ratio, GAMMAS, present)
    assert int(sum(chosen.sum() for chosen in mask.values())) == round(ratio * len(raw))
    assert all((mask[name] | ~chosen).all() for name, chosen in present.items())


def test_the_pure_criteria():
    unstable = {"a": torch.tensor([1.0, 0.75, 0.5, 0.25, 0.0])}
    significant = {"a": torch.tensor([1.0, 0.0, 0.25, 0.5, 0.75])}

    def first(*gammas: float) -> int:
        return int(select(unstable, significant, 0.2, gammas)["a"].nonzero())

    assert first(math.inf) == 0  # r_u
    assert first(0.0) == 1  # −r_s
    assert first(1.0) == 1  # r_u − r_s
    mask = select(unstable, significant, 0.4, (math.inf, 0.0))["a"]  # one neuron by each
    assert mask.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("ratio", [-0.1, 1.1, math.nan, math.inf])
def test_a_ratio_outside_0_to_1_is_refused(ratio):
    ranks = {"a": torch.rand(4)}
    with pytest.raises(LingraftError, match="between 0 and 1"):
        select(ranks, ranks, ratio)


def test_other_bad_input_is_refused():
    ranks = {"a": torch.rand(4)}
    with pytest.raises(LingraftError, match="same sites"):
        select(ranks, {"a": torch.rand(3)}, 0.5)
    with pytest.raises(LingraftError, match="γ"):
        select(ranks, ranks, 0.5, [])
    with pytest.raises(LingraftError, match="γ"):
        select(ranks, ranks, 0.5, [-1.0])
    with pytest.raises(LingraftError, match="ranks in"):
        select({"a": torch.arange(4.0)}, ranks, 0.5)
    with pytest.raises(LingraftError, match="'a' has no neurons"):
        select({"a": torch.rand(0)}, {"a": torch.rand(0)}, 0.5)
    with pytest.raises(LingraftError, match=r"\(3,\).*\(4,\)"):
        select(ranks, ranks, 0.5, GAMMAS, {"a": torch.zeros(3, dtype=torch.bool)})


@given(ratio=st.floats(0, 1), epochs=st.integers(1, 50), share=st.floats(0, 1))
def test_the_gradual_schedule_rises_to_the_ratio_in_the_first_half(ratio, epochs, share):
    start = ratio * share
    schedule = GradualSchedule(ratio, epochs, start)
    values = [schedule.at(epoch) for epoch in range(epochs)]
    assert all(a <= b + 1e-12 for a, b in zip([start, *values], values, strict=False))
    assert all(value == ratio for value in values[max(1, epochs // 2) - 1 :])
    gains = [b - a for a, b in zip([start, *values], values, strict=False)]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(gains))  # most of it early


def test_the_gradual_schedule_is_zhu_and_guptas():
    assert [GradualSchedule(0.8, 8).at(epoch) for epoch in range(4)] == pytest.approx(
        [0.8 * (1 - 0.75**3), 0.8 * (1 - 0.5**3), 0.8 * (1 - 0.25**3), 0.8]
    )
