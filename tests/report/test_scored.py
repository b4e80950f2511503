"""Which network scores are of, and which of them can be drawn as counts of images."""

from types import SimpleNamespace
from typing import Any

import torch

from lingraft.grafting import Scores
from lingraft.report.scored import before_and_after


def scores(instability: list[float] | None, kind: str = "count") -> Scores:
    values = None if instability is None else {"relu": torch.tensor(instability)}
    return Scores({"relu": torch.tensor([0.1, 0.2])}, values, {"instability": kind})


def study(
    own: Scores | None,
    grafted: Scores | None,
    parent: Scores | None,
    tested: tuple[Scores | None, Scores | None] = (None, None),
) -> Any:
    """A run in which the first of two neurons is grafted."""
    above = SimpleNamespace(scores=parent, test_scores=tested[0])
    masks = {"relu": torch.tensor([True, False])}
    return SimpleNamespace(scores=own, grafted_scores=grafted, test_scores=tested[1], parent=above, masks=masks)


COUNTS, AFTER, HARM = scores([5.0, 3.0]), scores([0.0, 2.0]), scores([0.7, 0.1], "harm-per-site")


def test_scores_that_neurons_were_chosen_by_are_those_before() -> None:
    assert before_and_after(study(COUNTS, AFTER, None)) == (COUNTS, AFTER)


def test_scores_of_the_grafted_network_are_known_by_its_linear_neurons() -> None:
    assert before_and_after(study(AFTER, None, COUNTS)) == (COUNTS, AFTER)


def test_harm_is_no_count_wherever_it_is_kept() -> None:
    assert before_and_after(study(HARM, HARM, COUNTS)) == (COUNTS, None)
    assert before_and_after(study(None, AFTER, HARM)) == (None, AFTER)
    assert before_and_after(study(scores(None), AFTER, COUNTS)) == (COUNTS, AFTER)


def test_counts_of_test_images_come_first_where_both_networks_have_them() -> None:
    before, after = scores([6.0, 4.0]), scores([0.0, 1.0])
    assert before_and_after(study(COUNTS, AFTER, None, (before, after))) == (before, after)
    assert before_and_after(study(COUNTS, AFTER, None, (None, after))) == (COUNTS, AFTER)
