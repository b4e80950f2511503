"""How the radius grows in training: a pure function of the time, as the learning rate schedules are."""

from collections.abc import Callable
from dataclasses import dataclass

from lingraft.ball import Ball
from lingraft.training.loss import Loss

#: The first quarter of the ramp is a power of the time, the rest a straight line that goes on from it smoothly.
_BEND, _POWER = 0.25, 4


@dataclass(frozen=True)
class Ramp:
    """0 for `warm_up` epochs, then from 0 to 1 over `length` epochs, then 1 (Xu et al. 2020, Shi et al. 2021)."""

    warm_up: int
    length: int

    def __call__(self, time: float) -> float:
        """The share of the full radius at a time in epochs."""
        if time >= self.full_from:
            return 1.0
        part = max(0.0, (time - self.warm_up) / self.length) if self.length else 0.0
        # α·s⁴ up to the bend, then on with the slope there; α such that it ends at 1
        factor = 1 / (_BEND**_POWER + _POWER * _BEND ** (_POWER - 1) * (1 - _BEND))
        if part <= _BEND:
            return factor * part**_POWER
        return factor * (_BEND**_POWER + _POWER * _BEND ** (_POWER - 1) * (part - _BEND))

    @property
    def full_from(self) -> int:
        """The first epoch, counted from 0, that has the full radius from its beginning."""
        return self.warm_up + self.length


@dataclass(frozen=True)
class GrowingLoss:
    """A loss in a ball that grows.

    Deep networks without batch norm that are attacked from the first step on may never leave the point where every
    prediction is the same (ConvBig on SVHN at ε = 2/255: after 8 epochs still the share of the most frequent digit).
    """

    make: Callable[[Ball], Loss]
    ball: Ball
    ramp: Ramp

    def at(self, time: float) -> Loss:
        """The loss at a time in epochs."""
        return self.make(self.ball.scaled(self.ramp(time)))
