"""Drawing very many points."""

from typing import Any

import numpy as np


def draw_points(axes: Any, x: np.ndarray, y: np.ndarray, colors: Any) -> None:
    """A scatter plot as one bitmap inside the picture, in a random order so that no colour covers the others.

    Points get smaller as they get more: a network may have a hundred thousand neurons.
    """
    order = np.random.default_rng(0).permutation(len(x))
    shades = np.asarray(colors)[order] if np.ndim(colors) else colors
    size = float(np.clip(9000 / max(1, len(x)), 0.4, 9))
    axes.scatter(x[order], y[order], s=size, c=shades, alpha=0.8, linewidths=0, rasterized=True)
