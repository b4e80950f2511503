"""Candidates of a search for the ratio and the measure of instability: which one is best, and which to try next."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lingraft import pareto
from lingraft.errors import LingraftError

#: Ratios that are tried first, from low to high; the distance of those tried around the best of them; and what is tried
#: if the lowest is too much.
RATIOS, STEP, LOWER = (0.2, 0.4, 0.6, 0.8), 0.1, (0.1, 0.05)


@dataclass(frozen=True)
class Candidate:
    """A setting, and what it reached on validation images after a short fine-tuning; shares are in [0, 1]."""

    instability: str
    ratio: float
    #: accuracy on all validation images
    sa: float
    #: of the validation images that were verified: proven, and undecided within the time limit
    va: float
    undecided: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.instability} at {self.ratio:.0%}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def best(candidates: Sequence[Candidate], min_sa: float) -> Candidate | None:
    """The highest VA among those with an SA of `min_sa` or more; then the highest SA, then the lowest ratio."""
    good = [c for c in candidates if c.sa >= min_sa]
    return max(good, key=lambda c: (c.va, c.sa, -c.ratio), default=None)


def require_best(candidates: Sequence[Candidate], min_sa: float) -> Candidate:
    """The same; a LingraftError if there is none."""
    found = best(candidates, min_sa)
    if found is None:
        highest = max(candidates, key=lambda c: c.sa)
        raise LingraftError(
            f"no candidate has a standard accuracy of {min_sa:.2%} on validation images: the best is {highest.sa:.2%}"
            f" ({highest}). Ask for less with --min-sa, or give the search more epochs (--search-epochs)."
        )
    return found


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The Pareto front by rising SA: no other candidate has both an SA and a VA as high, and one of them higher."""
    return pareto.front(sorted(candidates, key=lambda c: c.ratio), lambda c: (c.sa, c.va))


def next_setting(tried: Sequence[Candidate], measures: Sequence[str], min_sa: float) -> tuple[str, float] | None:
    """The measure of instability and the ratio to try next, None at the end.

    With the first measure the ratio goes up until SA falls below `min_sa`; then ratios on both sides of the best one
    are tried, and at the best of all these the other measures. If the lowest ratio is too much, lower ones follow.
    """
    first, *others = measures
    done = {(c.instability, c.ratio) for c in tried}
    ours = [c for c in tried if c.instability == first]
    coarse = [c for c in ours if c.ratio in RATIOS]
    if all(c.sa >= min_sa for c in coarse) and len(coarse) < len(RATIOS):
        return first, RATIOS[len(coarse)]
    chosen = best(coarse, min_sa)
    around = LOWER if chosen is None else (round(chosen.ratio - STEP, 2), round(chosen.ratio + STEP, 2))
    settings = [(first, ratio) for ratio in around]
    chosen = best(ours, min_sa)
    if chosen is not None:
        settings = [s for s in settings if s[1] not in LOWER or chosen.ratio in RATIOS]  # a low one was enough
        settings += [(measure, chosen.ratio) for measure in others]
    return next((setting for setting in settings if setting not in done), None)


def most(measures: Sequence[str]) -> int:
    """How many candidates there can be."""
    return len(RATIOS) + max(2, len(LOWER)) + len(measures) - 1
