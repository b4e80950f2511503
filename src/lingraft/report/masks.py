"""Figure: which neurons of each site are grafted (the paper, Section "Visualization of grafting mask")."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from lingraft.report.colors import POINT, STRONG_POINT
from lingraft.report.panels import WIDTH, Panel


def mask_pictures(masks: Mapping[str, Tensor]) -> list[Panel]:
    """One panel a site: a dot a neuron, bright where it is grafted; the channels of a convolution side by side."""
    return [_panel(site, mask.cpu().numpy()) for site, mask in masks.items()]


def tiled(mask: np.ndarray) -> np.ndarray:
    """A mask of any shape as a picture: 1 grafted, 0 not, −1 no neuron. (C, H, W) becomes tiles with gaps between."""
    if mask.ndim == 3:
        channels, height, width = mask.shape
        columns = math.ceil(math.sqrt(channels * 1.6 * height / width))
        rows = math.ceil(channels / columns)
        picture = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1), -1, dtype=np.int8)
        for i, channel in enumerate(mask):
            top, left = i // columns * (height + 1), i % columns * (width + 1)
            picture[top : top + height, left : left + width] = channel
        return picture
    flat = mask.ravel()
    columns = math.ceil(math.sqrt(2.5 * len(flat)))
    picture = np.full(math.ceil(len(flat) / columns) * columns, -1, dtype=np.int8)
    picture[: len(flat)] = flat
    return picture.reshape(-1, columns)


def _panel(site: str, mask: np.ndarray) -> Panel:
    picture = tiled(mask)

    def draw(axes: Any) -> None:
        from matplotlib.colors import to_rgba

        colors = np.array([to_rgba(POINT, 0.45), to_rgba(STRONG_POINT), (0, 0, 0, 0)])
        axes.imshow(colors[picture], interpolation="none", aspect="equal")
        axes.set_axis_off()

    share, shape = mask.mean(), "×".join(map(str, mask.shape))
    height = min(3.2, max(0.4, WIDTH * picture.shape[0] / picture.shape[1]))
    alt = f"Mask of site {site}: {int(mask.sum()):,} of {mask.size:,} neurons are grafted."
    return Panel(f"site {site}, {shape}: {share:.0%} grafted", alt, draw, height)
