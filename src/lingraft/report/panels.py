"""Panels: small pictures that stand alone on a page, or together in one figure."""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lingraft.errors import LingraftError
from lingraft.report.colors import FAINT, INK

#: Inches of a panel: as wide as a phone at a readable size of text.
WIDTH, HEIGHT = 3.5, 2.6


@dataclass(frozen=True)
class Panel:
    """One set of axes: what it is called, what it shows in words (for those who cannot see it), how to draw it."""

    title: str
    alt: str
    draw: Callable[[Any], None]
    height: float = HEIGHT


@contextmanager
def style() -> Iterator[None]:
    """How all panels look."""
    import matplotlib

    settings: Any = {
        "font.size": 8.5,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": FAINT,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "axes.unicode_minus": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "lingraft",
    }
    with matplotlib.rc_context(settings):
        yield


def legend_columns(names: Sequence[str]) -> int:
    """How many names fit side by side under a panel."""
    return max(1, min(3, len(names), 54 // (7 + max(map(len, names)))))


def legend_height(names: Sequence[str]) -> float:
    """Inches that a legend under a panel takes."""
    return 0.1 + 0.16 * math.ceil(len(names) / legend_columns(names))


def legend_below(axes: Any, names: Sequence[str]) -> None:
    """A legend under the axes, where it covers nothing."""
    drop = 0.42 * axes.figure.dpi / axes.bbox.height
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -drop), ncols=legend_columns(names))


def plain_numbers(axis: Any) -> None:
    """1, 10, 100 on a logarithmic axis; powers of ten as formulas take most of the time of drawing a panel."""
    from matplotlib.ticker import NullFormatter

    axis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axis.set_minor_formatter(NullFormatter())


def folded(name: str) -> str:
    """A long name on several lines, for the side of a panel."""
    return "\n".join(textwrap.wrap(name, 14))


def draw(panels: Sequence[Panel], columns: int = 3) -> Any:
    """One matplotlib figure of all the panels, row by row; its titles are theirs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not panels:
        raise LingraftError("there is nothing to draw.")
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    with style():
        height = sum(max(p.height for p in panels[i * columns : (i + 1) * columns]) for i in range(rows))
        figure = Figure(figsize=(WIDTH * columns, height), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            panel.draw(axes)
            if len(panels) > 1:
                axes.set_title(panel.title)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
    return figure
