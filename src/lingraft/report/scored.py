"""Which network the scores in a run folder are of: of the run itself, or of the one that it was grafted from."""

from collections.abc import Sequence

import torch

from lingraft.grafting.scores import Scores
from lingraft.report.study import Study


def scored_networks(studies: Sequence[Study]) -> dict[str, tuple[Scores, list[Study]]]:
    """Name of the network that was scored → its scores, and the runs that hold them; equal scores only once."""
    networks: dict[str, tuple[Scores, list[Study]]] = {}
    for study in studies:
        scores = study.scores
        if scores is None or scores.instability is None:
            continue
        same = next((name for name, (other, _) in networks.items() if _equal(scores, other)), None)
        if same is not None:
            networks[same][1].append(study)
            continue
        of_parent = study.parent is not None and study.grafted_share and not _is_grafted(scores, study)
        name = study.parent.name if of_parent and study.parent else study.name
        if name in networks:
            name = f"{name}, as scored for {study.name}"
        networks[name] = scores, [study]
    return networks


def before_and_after(study: Study) -> tuple[Scores | None, Scores | None]:
    """Counts of unstable images of the network that a run was grafted from, and of the grafted one; None if missing.

    Of test images, where both have them, else of training images.
    """
    tested = _counts(study.parent.test_scores) if study.parent is not None else None, _counts(study.test_scores)
    if None not in tested:
        return tested
    before, after = _counts(study.scores), _counts(study.grafted_scores)
    if before is not None and _is_grafted(before, study):
        before, after = None, after or before
    if before is None and study.parent is not None:
        before = _counts(study.parent.scores)
    return before, after


def _counts(scores: Scores | None) -> Scores | None:
    """Scores whose instability counts images; others measure harm, or no instability at all."""
    if scores is None or scores.instability is None or scores.facts.get("instability", "count") != "count":
        return None
    return scores


def _is_grafted(scores: Scores, study: Study) -> bool:
    """Whether these are scores of the grafted network: its grafted neurons are never unstable."""
    counts = scores.instability
    return counts is not None and all(not counts[s][m].any() for s, m in study.masks.items() if s in counts)


def alike(a: Scores, b: Scores) -> bool:
    """Whether two scores were made under the same conditions."""
    return all(a.facts.get(name) == b.facts.get(name) for name in ("eps", "bounds", "bound_images", "split"))


def _equal(a: Scores, b: Scores) -> bool:
    return all(
        one is not None
        and other is not None
        and one.keys() == other.keys()
        and all(one[site].shape == other[site].shape and torch.equal(one[site], other[site]) for site in one)
        for one, other in ((a.significance, b.significance), (a.instability, b.instability))
    )
