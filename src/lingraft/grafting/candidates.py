"""Candidates of a search for the ratio and the measure of instability, and which of them is best."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lingraft import pareto
from lingraft.errors import LingraftError

#: Ratios that are tried with each measure of instability.
RATIOS = (0.1, 0.25, 0.4, 0.6, 0.8)


@dataclass(frozen=True)
class Candidate:
    """A setting, and what it reached on validation images after a short fine-tuning; shares are in [0, 1]."""

    instability: str
    ratio: float
    epochs: int
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
