"""Figure: a figure of merit over an option that was varied, one line a row of the recipe."""

from collections.abc import Sequence
from typing import Any

from lingraft.report.colors import series
from lingraft.report.panels import HEIGHT, Panel, legend_below, legend_height
from lingraft.work.experiments.recipe import COLUMNS, Network
from lingraft.work.experiments.results import Result


def sweep(results: Sequence[Result], options: dict[str, str], columns: Sequence[str]) -> dict[str, list[Panel]]:
    """Heading → a panel for each column. `options` maps a row to the option that it varies; other rows are levels."""
    levels = [result for result in results if result.value is None]
    groups: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        if result.value is not None:
            heading = f"{result.network.name}: {options[result.row]}"
            groups.setdefault(heading, {}).setdefault(result.row, []).append(result)
    return {
        heading: [
            _panel(heading, found, [level for level in levels if level.network == _network(found)], option, column)
            for column in columns
        ]
        for heading, found in groups.items()
        for option in [options[next(iter(found))]]
    }


def _network(found: dict[str, list[Result]]) -> Network:
    return next(iter(found.values()))[0].network


def _panel(heading: str, found: dict[str, list[Result]], levels: list[Result], option: str, column: str) -> Panel:
    title = COLUMNS[column][0]
    names = [*found, *(level.row for level in levels)]

    def draw(axes: Any) -> None:
        for i, (row, results) in enumerate(found.items()):
            points = [(result.value, result.mean(column)) for result in results]
            shown = [(x, y) for x, y in points if y is not None]
            axes.plot(*zip(*shown, strict=True), "o-", color=series(i), linewidth=1.8, markersize=4, label=row)
        for i, level in enumerate(levels, len(found)):
            if (height := level.mean(column)) is not None:
                axes.axhline(height, color=series(i), linewidth=1.2, linestyle="--", label=level.row)
        axes.set_xlabel(option)
        axes.set_ylabel(title)
        legend_below(axes, names)

    spoken = [
        f"{row}: " + ", ".join(f"{r.value:g} gives {_spoken(r.mean(column))}" for r in results)
        for row, results in found.items()
    ]
    spoken += [f"{level.row}: {_spoken(level.mean(column))}" for level in levels]
    alt = f"{heading}: {title} over {option}. {'; '.join(spoken)}."
    return Panel(title, alt, draw, HEIGHT + legend_height(names))


def _spoken(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.1f}"
