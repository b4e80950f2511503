"""The picture that a report and the README begin with: SA, RA and VA of some networks, as bars."""

from collections.abc import Mapping
from typing import Any

from lingraft.report.colors import COLORS
from lingraft.report.panels import Panel, folded

#: Bars of each network, from above: field of a row of the summary table → (what it is, how full its colour is)
MEASURES: dict[str, tuple[str, float]] = {
    "sa": ("accurate (SA)", 0.3),
    "ra": ("not broken (RA)", 0.6),
    "va": ("proven (VA)", 1.0),
}

#: Inches that a network takes, and what is around the bars: axis and legend.
ROW, AROUND = 0.55, 0.65


def accuracies(networks: Mapping[str, Mapping[str, float | None]]) -> Panel:
    """Network → its "sa", "ra" and "va" in [0, 1]; None for what was not measured, which has no bar."""

    def draw(axes: Any) -> None:
        for place, (field, (what, fullness)) in enumerate(MEASURES.items()):
            rows = [row + 0.27 * (place - 1) for row in range(len(networks))]
            values = [figures[field] for figures in networks.values()]
            bars = axes.barh(
                rows, [v or 0.0 for v in values], 0.25, color=COLORS["blue"][0], alpha=fullness, label=what
            )
            texts = ["" if v is None else f"{v:.1%}" for v in values]
            axes.bar_label(bars, texts, padding=3, fontsize=7.5, weight="bold" if field == "va" else "normal")
        axes.set_xlim(0, 1.14)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        axes.set_yticks(range(len(networks)), [folded(name) for name in networks])
        axes.set_ylim(len(networks) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(False)
        under = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.3 * axes.figure.dpi / axes.bbox.height)}
        axes.legend(**under, ncols=len(MEASURES), handlelength=1.2, handletextpad=0.5, columnspacing=1.2)

    spoken = "; ".join(f"{name}: {_spoken(figures)}" for name, figures in networks.items())
    return Panel("SA, RA and VA", f"Bars of accuracies. {spoken}.", draw, AROUND + ROW * len(networks))


def _spoken(figures: Mapping[str, float | None]) -> str:
    known = [f"{field.upper()} {value:.1%}" for field in MEASURES if (value := figures[field]) is not None]
    return ", ".join(known) or "nothing measured"
