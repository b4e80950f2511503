"""Figure: a figure of merit over an option that was varied, one line a row of the recipe."""

from collections.abc import Sequence
from typing import Any

from lingraft.report.colors import series
from lingraft.report.panels import HEIGHT, Panel, legend_below, legend_height
from lingraft.work.experiments.recipe import COLUMNS
from lingraft.work.experiments.results import Result


def sweep(results: Sequence[Result], options: dict[str, str], columns: Sequence[str]) -> dict[str, list[Panel]]:
    """Heading → a panel for each column. `options` maps a row to the option that it varies."""
    groups: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        if result.value is not None:
            heading = f"{result.network.name}: {options[result.row]}"
            groups.setdefault(heading, {}).setdefault(result.row, []).append(result)
    return {
        heading: [_panel(heading, found, options[next(iter(found))], column) for column in columns]
        for heading, found in groups.items()
    }


def _panel(heading: str, found: dict[str, list[Result]], option: str, column: str) -> Panel:
    title = COLUMNS[column][0]

    def draw(axes: Any) -> None:
        for i, (row, results) in enumerate(found.items()):
            points = [(result.value, result.mean(column)) for result in results]
            shown = [(x, y) for x, y in points if y is not None]
            axes.plot(*zip(*shown, strict=True), "o-", color=series(i), linewidth=1.8, markersize=4, label=row)
        axes.set_xlabel(option)
        axes.set_ylabel(title)
        legend_below(axes, list(found))

    spoken = "; ".join(
        f"{row}: " + ", ".join(f"{r.value:g} gives {_spoken(r.mean(column))}" for r in results)
        for row, results in found.items()
    )
    return Panel(title, f"{heading}: {title} over {option}. {spoken}.", draw, HEIGHT + legend_height(list(found)))


def _spoken(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.1f}"
