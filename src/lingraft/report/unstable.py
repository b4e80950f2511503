"""Figure: for how many images neurons are unstable, site by site, before and after grafting (the paper, Section 5)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lingraft.grafting.ranking import NeuronValues, flatten
from lingraft.report.colors import series
from lingraft.report.panels import HEIGHT, Panel, legend_below, legend_height, plain_numbers

BINS = 20


def unstable_histograms(
    counts: Mapping[str, NeuronValues], images: int, colors: Mapping[str, str] | None = None
) -> list[Panel]:
    """All neurons, then one panel a site: how many neurons (log) are unstable for so many of `images` images.

    `counts` maps what a network is called, the one before grafting first, to the counts of its neurons; grafted neurons
    are never unstable.
    """
    first = next(iter(counts.values()))
    whole = {name: flatten(values) for name, values in counts.items()}
    sites = {site: {name: flatten({site: values[site]}) for name, values in counts.items()} for site in first}
    shades = colors or {name: series(i) for i, name in enumerate(counts)}
    return [
        _panel("all sites", whole, images, shades),
        *(_panel(f"site {site}", parts, images, shades) for site, parts in sites.items()),
    ]


def _panel(title: str, counts: Mapping[str, np.ndarray], images: int, colors: Mapping[str, str]) -> Panel:
    edges = np.linspace(0, images, min(BINS, images) + 1)

    def draw(axes: Any) -> None:
        for i, (name, values) in enumerate(counts.items()):
            if i == 0:
                axes.hist(values, edges, color=colors[name], alpha=0.45, label=name)
            else:
                axes.hist(values, edges, histtype="step", linewidth=1.5, color=colors[name], label=name)
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        plain_numbers(axes.yaxis)
        axes.set_xlim(0, images)
        axes.set_xlabel("images for which a neuron is unstable")
        axes.set_ylabel("neurons")
        legend_below(axes, list(counts))

    means = "; ".join(f"{name}: {values.mean() / images:.1%} on average" for name, values in counts.items())
    height = HEIGHT + legend_height(list(counts))
    return Panel(title, f"Histogram of unstable neurons, {title}. Unstable: {means}.", draw, height)
