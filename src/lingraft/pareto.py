"""What is not dominated: of things with two figures, those that no other one beats."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

#: thing → two figures, the higher the better
Figures = Callable[[T], tuple[float, float]]


def front(things: Sequence[T], figures: Figures[T]) -> list[T]:
    """Those for which no other has both figures as high and one of them higher, by rising first figure.

    Of equals the first one stands for all.
    """
    kept: list[T] = []
    for thing in sorted(things, key=lambda thing: tuple(-figure for figure in figures(thing))):
        if not kept or figures(thing)[1] > figures(kept[-1])[1]:
            kept.append(thing)
    return kept[::-1]


def best_half(things: Sequence[T], figures: Figures[T]) -> list[T]:
    """At least half of them, in their order: the front, then that of the others, and so on until it is half."""
    kept: list[int] = []
    left = list(range(len(things)))
    while 2 * len(kept) < len(things):
        kept += front(left, lambda i: figures(things[i]))
        left = [i for i in left if i not in kept]
    return [things[i] for i in sorted(kept)]
