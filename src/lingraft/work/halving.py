"""Successive halving (Jamieson and Talwalkar 2016): many settings for few epochs, the better half of them for more."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from lingraft.pareto import Figures, best_half

Setting = TypeVar("Setting")
Point = TypeVar("Point")


def halving(
    settings: Sequence[Setting],
    epochs: int,
    try_round: Callable[[Sequence[Setting], int], list[tuple[Setting, Point]]],
    next_epochs: Callable[[Sequence[Point], int], int | None],
    figures: Figures[Point],
) -> list[list[Point]]:
    """What each round found, the first one with `epochs` for each setting.

    `try_round` gives settings, at least one, with what they reached in so many epochs; by `figures` the better half
    goes on: the front, then what would be the front without it, and so on. `next_epochs` says with how many, from what
    goes on and the epochs that it had; None: that was the last round.
    """
    rounds: list[list[Point]] = []
    while True:
        found = try_round(settings, epochs)
        rounds.append([point for _, point in found])
        kept = best_half(found, lambda pair: figures(pair[1]))
        following = next_epochs([point for _, point in kept], epochs)
        if following is None:
            return rounds
        settings, epochs = [setting for setting, _ in kept], following
