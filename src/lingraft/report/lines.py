"""Figure: learned slope over intercept of grafted neurons (the paper, Section "Visualization of grafting mask")."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from lingraft.report.colors import INK, STRONG_POINT
from lingraft.report.panels import Panel
from lingraft.report.points import draw_points


def slope_over_intercept(lines: Mapping[str, tuple[Tensor, Tensor]]) -> list[Panel]:
    """One panel a site of `lines`: site → slopes and intercepts of its grafted neurons, each (n,)."""
    arrays = {site: [values.detach().cpu().numpy() for values in pair] for site, pair in lines.items()}
    return [_panel(site, *pair) for site, pair in arrays.items() if len(pair[0])]


def _panel(site: str, slopes: np.ndarray, intercepts: np.ndarray) -> Panel:
    slope, intercept = float(np.median(slopes)), float(np.median(intercepts))

    def draw(axes: Any) -> None:
        draw_points(axes, intercepts, slopes, STRONG_POINT)
        axes.axhline(slope, color=INK, linewidth=0.8, linestyle=":")
        axes.axvline(intercept, color=INK, linewidth=0.8, linestyle=":")
        axes.set_xlabel("intercept b")
        axes.set_ylabel("slope a")

    title = f"site {site}: median a = {slope:.2f}, b = {intercept:.2f}"
    low, high = np.quantile(slopes, [0.1, 0.9])
    spread = f"Four fifths of the slopes lie between {low:.2f} and {high:.2f}."
    return Panel(title, f"Slope over intercept of {len(slopes):,} neurons of {title}. {spread}", draw)
