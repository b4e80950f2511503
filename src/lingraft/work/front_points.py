"""Points of a front: what a setting reached on validation images, and what a network reached on test images."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lingraft.report.front_figure import Place, front_of
from lingraft.work.experiments.certainty import wilson


@dataclass(frozen=True)
class Tried:
    """A setting, trained for so many epochs, on validation images; shares in [0, 1], `seconds` of measuring."""

    name: str
    #: the key of the stage that made the run, and the folder
    key: str
    run: str
    epochs: int
    sa: float
    va: float
    undecided: float
    images: int
    timeout: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Tried":
        """What `as_dict` gave."""
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Tested:
    """A network on test images: SA on all of them, the verdicts on the first `images`."""

    name: str
    run: str
    epochs: int
    sa: float
    images_sa: int
    verified: int
    undecided: int
    images: int
    timeout: float

    @property
    def va(self) -> float:
        """The verified share."""
        return self.verified / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """Where VA lies with 95 % confidence, as far as it depends on which images were taken (Wilson); in [0, 1]."""
        low, high = wilson(self.verified, self.images)
        return low / 100, high / 100

    @property
    def place(self) -> Place:
        """What is drawn of it."""
        return Place(self.name, self.sa, self.va, self.interval)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.name}: SA {self.sa:.2%}, VA {self.va:.2%} (95 % interval {low:.0%} to {high:.0%}), {self.run}"


def on_front(tested: Sequence[Tested]) -> list[Tested]:
    """Those that no other beats in SA and VA, by rising SA."""
    edge = front_of([each.place for each in tested])
    return [next(each for each in tested if each.place == place) for place in edge]


def advice(tested: Sequence[Tested], min_sa: float | None = None) -> list[str]:
    """Which network to take for which SA: a sentence for `min_sa`, or else for each one on the front."""
    edge = on_front(tested)
    if min_sa is None:
        return [f"for SA ≥ {math.floor(1000 * each.sa) / 10:.1f} % take {each}" for each in edge]
    good = [each for each in edge if each.sa >= min_sa]
    if not good:
        return [f"no network has SA ≥ {min_sa:.1%}; the nearest is {edge[-1]}"]
    return [f"for SA ≥ {min_sa:.1%} take {good[0]}"]
