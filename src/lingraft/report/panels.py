"""Panels: small pictures that stand alone on a page, as SVG, or together in one figure, for files."""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from lingraft.errors import LingraftError
from lingraft.report.colors import COLORS, FAINT, INK

#: Inches of a panel: as wide as a phone at a readable size of text.
WIDTH, HEIGHT = 3.5, 2.6

#: Dots per inch of what is drawn as points inside an SVG.
DPI = 160


@dataclass(frozen=True)
class Panel:
    """One set of axes: what it is called, what it shows in words (for those who cannot see it), how to draw it."""

    title: str
    alt: str
    draw: Callable[[Any], None]
    height: float = HEIGHT


def style() -> AbstractContextManager[None]:
    """How all panels look."""
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
    return matplotlib.rc_context(settings)


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
    axis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axis.set_minor_formatter(NullFormatter())


def folded(name: str) -> str:
    """A long name on several lines, for the side of a panel."""
    return "\n".join(textwrap.wrap(name, 14))


def draw_points(axes: Any, x: np.ndarray, y: np.ndarray, colors: Any) -> None:
    """A scatter plot as one bitmap inside the picture, in a random order so that no colour covers the others.

    Points get smaller as they get more: a network may have a hundred thousand neurons.
    """
    order = np.random.default_rng(0).permutation(len(x))
    shades = np.asarray(colors)[order] if np.ndim(colors) else colors
    size = float(np.clip(9000 / max(1, len(x)), 0.4, 9))
    axes.scatter(x[order], y[order], s=size, c=shades, alpha=0.8, linewidths=0, rasterized=True)


def draw(panels: Sequence[Panel], columns: int = 3) -> Figure:
    """One matplotlib figure of all the panels, row by row; its titles are theirs."""
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


def inline_svg(panel: Panel, prefix: str) -> str:
    """An <svg> element that takes its colours and its font from the page. `prefix` makes the ids in it unique there."""
    buffer = BytesIO()
    figure = draw([panel])
    with style():
        figure.savefig(buffer, format="svg", dpi=DPI, transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    for name, (light, _) in COLORS.items():
        text = text.replace(light, f"var(--{name})")
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    head = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" aria-label="{escape(panel.alt)}">'
    return re.sub(r"\n\s*", "\n", head + rest).strip()
