"""Learning rate schedules: pure functions of the time, so that going on after a stop needs no state."""

import math
from collections.abc import Callable, Sequence

from lingraft.errors import LingraftError
from lingraft.names import lookup

#: time in epochs, with the part of the running epoch as its fraction → factor on every learning rate
Schedule = Callable[[float], float]


def _step(epochs: int, milestones: Sequence[int] | None) -> Schedule:
    if milestones is None:
        milestones = (math.ceil(epochs / 2), math.ceil(epochs * 3 / 4))
    return lambda time: 0.1 ** sum(int(time) >= milestone for milestone in milestones)


def _one_cycle(epochs: int, milestones: Sequence[int] | None) -> Schedule:
    peak = 0.4 * epochs
    return lambda time: time / peak if time < peak else max(0.0, (epochs - time) / (epochs - peak))


def _cosine(epochs: int, milestones: Sequence[int] | None) -> Schedule:
    return lambda time: 0.5 + 0.5 * math.cos(math.pi * int(time) / epochs)


SCHEDULES: dict[str, Callable[[int, Sequence[int] | None], Schedule]] = {
    "step": _step,
    "one-cycle": _one_cycle,
    "cosine": _cosine,
}


def make_schedule(name: str, epochs: int, milestones: Sequence[int] | None = None) -> Schedule:
    """The factor on the learning rate over `epochs` epochs.

    step: ÷10 at each milestone, an epoch counted from 0 (default: at 1/2 and 3/4, which is 100 and 150 of 200);
    one-cycle: linear from 0 to 1 at 2/5 of the time and back to 0 (as Andriushchenko and Flammarion);
    cosine: annealed to 0, once an epoch (the paper's fine-tuning).
    """
    make = lookup("schedule", name, SCHEDULES)
    if milestones is not None and name != "step":
        raise LingraftError(f"milestones belong to the schedule 'step', not to {name!r}. Leave them out.")
    if milestones is not None and any(milestone < 1 for milestone in milestones):
        raise LingraftError(f"milestones are epochs from 1, not {list(milestones)}.")
    return make(epochs, milestones)
