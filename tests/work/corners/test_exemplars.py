"""Modal predictions and where they differ, against the definitions in plain Python."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lingraft.work.corners import corner_cases, modal_classes

CLASSES = 4


@st.composite
def votes(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Predictions of some networks on each side for the same images."""
    images = draw(st.integers(1, 6))
    row = st.lists(st.integers(0, CLASSES - 1), min_size=images, max_size=images)
    return draw(st.lists(row, min_size=1, max_size=5)), draw(st.lists(row, min_size=1, max_size=5))


def most_frequent(predicted: tuple[int, ...]) -> set[int]:
    counts = Counter(predicted)
    return {name for name, count in counts.items() if count == max(counts.values())}


def found(ours: list[list[int]], theirs: list[list[int]]) -> list[int]:
    sides = (modal_classes(torch.tensor(side), CLASSES) for side in (ours, theirs))
    return corner_cases(*sides).tolist()


@given(votes())
def test_a_corner_case_differs_however_ties_are_broken(sides: tuple[list[list[int]], list[list[int]]]) -> None:
    ours, theirs = ([most_frequent(image) for image in zip(*side, strict=True)] for side in sides)
    assert [set(row.nonzero().flatten().tolist()) for row in modal_classes(torch.tensor(sides[0]), CLASSES)] == ours
    different = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if all(x != y for x in a for y in b)]
    assert found(*sides) == different


@given(votes(), st.randoms(use_true_random=False), st.permutations(range(CLASSES)))
def test_order_and_numbering_do_not_matter(sides, random, renamed) -> None:
    before = found(*sides)
    assert found(*reversed(sides)) == before
    shuffled = [random.sample(side, len(side)) for side in sides]
    assert found(*([[renamed[c] for c in row] for row in side] for side in shuffled)) == before


@pytest.mark.parametrize(
    ("ours", "theirs", "corner"),
    [
        ([3, 3, 1], [1, 1, 3], True),
        ([3, 3, 1], [3, 1, 3], False),
        ([3, 1], [1, 1], False),  # a tie that can be broken either way
        ([3, 0], [1, 1], True),  # a tie that cannot
        ([3], [2], True),
    ],
)
def test_examples(ours: list[int], theirs: list[int], corner: bool) -> None:
    assert found([[c] for c in ours], [[c] for c in theirs]) == ([0] if corner else [])
