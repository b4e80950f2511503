"""How sure a table is: the interval of a share, and rows compared image by image instead of by their shares."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from scipy.stats import binomtest

from lingraft.report.study import Verification
from lingraft.runs.summary import in_time


@dataclass(frozen=True)
class Comparison:
    """Verified images of a row and of another one, `other`, on the images (of the same seed) that both were asked.

    `p` is that of McNemar's exact test: how likely so uneven a split of the images that only one of them verifies is,
    if both were equally good.
    """

    other: str
    images: int
    both: int
    only_this: int
    only_other: int
    p: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def wilson(count: int, images: int) -> tuple[float, float]:
    """The 95 % interval of Wilson, in percent, of a share that was `count` of `images`."""
    interval = binomtest(count, images).proportion_ci(0.95, method="wilson")
    return round(100 * float(interval.low), 2), round(100 * float(interval.high), 2)


def compare(other: str, these: Sequence[Verification], those: Sequence[Verification]) -> Comparison:
    """The verifications of a row against those of the row `other`, seed by seed, on the images of both."""
    pairs = [
        (mine[image], theirs[image])
        for mine, theirs in ((_verified(this), _verified(that)) for this, that in zip(these, those, strict=False))
        for image in mine.keys() & theirs.keys()
    ]
    only_this, only_other = pairs.count((True, False)), pairs.count((False, True))
    uneven = only_this + only_other
    p = float(binomtest(only_this, uneven).pvalue) if uneven else 1.0
    return Comparison(other, len(pairs), pairs.count((True, True)), only_this, only_other, p)


def _verified(verification: Verification) -> dict[int, bool]:
    """Image → whether it was verified within the limit."""
    limit = verification.limits[1]
    return {result.index: in_time(result, limit).verdict == "verified" for result in verification.results}


def shared_images(verifications: Sequence[Verification]) -> set[int]:
    """The images whose neurons were bounded in each of these verifications."""
    return set.intersection(*(set(_unstable(each)) for each in verifications))


def mean_unstable(verification: Verification, images: set[int]) -> float | None:
    """The mean share of unstable neurons over these images, in [0, 1]; None if there are none."""
    shares = [share for image, share in _unstable(verification).items() if image in images]
    return fmean(shares) if shares else None


def _unstable(verification: Verification) -> dict[int, float]:
    """Image → its share of unstable neurons, where they were counted."""
    return {r.index: sum(r.unstable.values()) / r.neurons for r in verification.results if r.unstable and r.neurons}
