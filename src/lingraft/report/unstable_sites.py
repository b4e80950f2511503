"""Figure: how many neurons of each site are unstable for an image, network beside network."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from lingraft.report.colors import series
from lingraft.report.panels import Panel, folded, legend_below, legend_height
from lingraft.solver.verifier import Result


def mean_unstable(results: Sequence[Result]) -> dict[str, float]:
    """Site → mean number of unstable neurons, over the images whose neurons were bounded."""
    bounded = [result.unstable for result in results if result.unstable]
    return {site: fmean(counts[site] for counts in bounded) for site in bounded[0]} if bounded else {}


def unstable_by_site(results: Mapping[str, Sequence[Result]], colors: Mapping[str, str] | None = None) -> Panel:
    """Mean number of unstable neurons a site, as bars; one colour a network."""
    means = {name: mean for name, found in results.items() if (mean := mean_unstable(found))}
    sites = list(next(iter(means.values())))
    shades = colors or {name: series(i) for i, name in enumerate(means)}
    thick = 0.8 / len(means)

    def draw(axes: Any) -> None:
        for i, (name, mean) in enumerate(means.items()):
            places = [row + (i + 0.5) * thick - 0.4 for row in range(len(sites))]
            values = [mean.get(site, 0.0) for site in sites]
            bars = axes.barh(places, values, 0.9 * thick, color=shades[name], label=name)
            axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=2, fontsize=7.5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.set_yticks(range(len(sites)), [folded(f"site {site}") for site in sites])
        axes.invert_yaxis()
        axes.margins(x=0.16)
        axes.grid(False, axis="y")
        axes.set_xlabel("unstable neurons, mean over the images")
        legend_below(axes, list(means))

    height = 0.9 + 0.22 * len(sites) * max(2, len(means)) + legend_height(list(means))
    spoken = "; ".join(f"{name}: {sum(mean.values()):,.0f} in all" for name, mean in means.items())
    return Panel("unstable neurons a site", f"Mean number of unstable neurons for an image. {spoken}.", draw, height)
