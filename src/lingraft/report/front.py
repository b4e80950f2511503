"""Figure and files: VA over SA of the candidates of a search, and their Pareto front."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lingraft.files import replacing, write_json
from lingraft.grafting.candidates import Candidate, front
from lingraft.report.colors import GRAY, INK, series
from lingraft.report.figures import save_figure
from lingraft.report.panels import HEIGHT, Panel, draw, legend_below, legend_height
from lingraft.runs import Run


def front_panel(candidates: Sequence[Candidate], chosen: Candidate | None, min_sa: float) -> Panel:
    """One point a candidate, with its ratio; the front as a line, the SA asked for, a ring around the chosen one."""
    measures = list(dict.fromkeys(c.instability for c in candidates))
    edge = front(candidates)
    labels: dict[tuple[float, float], list[str]] = {}  # candidates may share a place
    for c in candidates:
        ratios = labels.setdefault((c.sa, c.va), [])
        ratios += [ratio for ratio in (f"{c.ratio:.0%}",) if ratio not in ratios]

    def draw_on(axes: Any) -> None:
        axes.plot([c.sa for c in edge], [c.va for c in edge], color=GRAY, linewidth=1.2, zorder=1)
        for i, measure in enumerate(measures):
            points = [c for c in candidates if c.instability == measure]
            axes.scatter([c.sa for c in points], [c.va for c in points], s=22, color=series(i + 1), label=measure)
        for place, ratios in labels.items():
            axes.annotate(", ".join(ratios), place, xytext=(4, 3), textcoords="offset points", fontsize=7)
        if chosen is not None:
            axes.scatter([chosen.sa], [chosen.va], s=90, facecolors="none", edgecolors=INK, linewidths=1.2)
        axes.axvline(min_sa, color=INK, linewidth=0.8, linestyle=":")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel("standard accuracy (SA)")
        axes.set_ylabel("verified (VA)")
        legend_below(axes, measures)

    spoken = "; ".join(f"{c}: SA {c.sa:.1%}, VA {c.va:.1%}" for c in edge)
    return Panel("VA over SA", f"Pareto front of the search. {spoken}.", draw_on, HEIGHT + legend_height(measures))


def write_front(run: Run, candidates: Sequence[Candidate], chosen: Candidate | None, min_sa: float) -> list[Path]:
    """search/front.json and .csv, figures/front.svg and .png of the run; gives their paths."""
    edge = front(candidates)
    rows = [{**c.as_dict(), "front": c in edge, "chosen": c == chosen} for c in candidates]
    path, table = run.path / "search" / "front.json", run.path / "search" / "front.csv"
    write_json(path, {"min_sa": min_sa, "candidates": rows})
    with replacing(table) as part, open(part, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return [path, table, *save_figure(draw([front_panel(candidates, chosen, min_sa)]), run, "front")]
