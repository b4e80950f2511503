"""Figure: verified over standard accuracy of several networks, with intervals, and the front of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lingraft import pareto
from lingraft.report.colors import GRAY, INK, series
from lingraft.report.panels import HEIGHT, Panel, legend_below, legend_height


@dataclass(frozen=True)
class Place:
    """Where a network lies: its name, SA, VA and the 95 % interval of VA; shares in [0, 1]."""

    name: str
    sa: float
    va: float
    interval: tuple[float, float]


def front_of(places: Sequence[Place]) -> list[Place]:
    """Those that no other beats in both, by rising SA."""
    return pareto.front(places, lambda place: (place.sa, place.va))


def draw_front(axes: Any, edge: Sequence[tuple[float, float]], min_sa: float | None, verified: str) -> None:
    """A line through (SA, VA) of a front, the SA that is asked for, and axes in per cent."""
    axes.plot(*zip(*edge, strict=True), color=GRAY, linewidth=1.2, zorder=1)
    if min_sa is not None:
        axes.axvline(min_sa, color=INK, linewidth=0.8, linestyle=":")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("standard accuracy (SA)")
    axes.set_ylabel(verified)


def front_panel(places: Sequence[Place], min_sa: float | None = None) -> Panel:
    """A point with its interval for each network, a line through the front; `min_sa` is drawn where it is asked for."""
    edge = front_of(places)

    def draw(axes: Any) -> None:
        draw_front(axes, [(p.sa, p.va) for p in edge], min_sa, "verified (VA), 95 % interval")
        for i, p in enumerate(places):
            reach = [[p.va - p.interval[0]], [p.interval[1] - p.va]]
            axes.errorbar(p.sa, p.va, reach, fmt="o", color=series(i), markersize=4, capsize=2, label=p.name)
        legend_below(axes, names)

    names = [p.name for p in places]
    spoken = "; ".join(f"{p.name}: SA {p.sa:.1%}, VA {p.va:.1%}" for p in edge)
    return Panel("VA over SA", f"Pareto front. {spoken}.", draw, HEIGHT + legend_height(names))
