"""Figure: average lower bounds of the margins before and after grafting (the paper, Section 5)."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from lingraft.report.colors import INK, series
from lingraft.report.panels import Panel, folded, plain_numbers
from lingraft.solver.verifier import Result


def lowest_bounds(results: Sequence[Result]) -> dict[int, tuple[float, float]]:
    """Image → its lowest margin by CROWN and by α-CROWN at the root, for the images that got as far as bounds.

    Where CROWN proved everything there was no need of α-CROWN, and both are the same.
    """
    found = {}
    for result in results:
        crown, alpha = result.crown, result.alpha or result.crown
        if crown and all(map(math.isfinite, [*crown, *alpha])):
            found[result.index] = min(crown), min(alpha)
    return found


def common_bounds(results: Mapping[str, Sequence[Result]]) -> tuple[dict[str, tuple[float, float]], int]:
    """Means by CROWN and α-CROWN for each network on the images that all of them have, and how many these are."""
    lowest = {name: lowest_bounds(found) for name, found in results.items()}
    lowest = {name: found for name, found in lowest.items() if found}
    common = set.intersection(*(set(found) for found in lowest.values())) if lowest else set()
    if not common:
        return {}, 0
    means = {
        name: (fmean(found[i][0] for i in common), fmean(found[i][1] for i in common)) for name, found in lowest.items()
    }
    return means, len(common)


def average_lower_bounds(results: Mapping[str, Sequence[Result]], colors: Mapping[str, str] | None = None) -> Panel:
    """Mean of the lowest margin's lower bound, for each network: pale by CROWN, full by α-CROWN; above 0 is proven."""
    means, images = common_bounds(results)
    shades = colors or {name: series(i) for i, name in enumerate(means)}

    def draw(axes: Any) -> None:
        for row, (name, pair) in enumerate(means.items()):
            for place, value, alpha, how in zip((-0.2, 0.2), pair, (0.5, 1.0), ("CROWN", "α-CROWN"), strict=True):
                axes.barh(row + place, value, 0.36, color=shades[name], alpha=alpha)
                text, beside = f"{how} {value:.3g}".replace(" -", " −"), (max(0.0, value), row + place)
                axes.annotate(text, beside, (3, 0), textcoords="offset points", va="center", fontsize=7.5)
        low, high = min(min(pair) for pair in means.values()), max(max(pair) for pair in means.values())
        smallest = min(abs(value) for pair in means.values() for value in pair)
        if low < 0 and -low > 50 * max(smallest, 1e-9):
            axes.set_xscale("symlog", linthresh=max(1.0, smallest))
            plain_numbers(axes.xaxis)
        else:
            width = max(high, 0.0) - min(low, 0.0)
            axes.set_xlim(min(low, 0.0) - 0.04 * width, max(high, 0.0) + 0.6 * width)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(means)), [folded(name) for name in means])
        axes.set_ylim(len(means) - 0.4, -0.6)
        axes.grid(False, axis="y")
        axes.set_xlabel(f"lowest margin, mean of {images} images")

    spoken = "; ".join(f"{name}: CROWN {crown:.3g}, α-CROWN {alpha:.3g}" for name, (crown, alpha) in means.items())
    return Panel(
        "average lower bounds", f"Mean lower bound of the lowest margin. {spoken}.", draw, 0.9 + 0.5 * len(means)
    )
