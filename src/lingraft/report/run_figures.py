"""Pictures that a run folder keeps of how it was made: figures/history of training, figures/front of a search."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lingraft.files import replacing, write_json
from lingraft.grafting.candidates import Candidate, front
from lingraft.report.colors import INK, series
from lingraft.report.front_figure import draw_front
from lingraft.report.panels import HEIGHT, Panel, draw, legend_below, legend_height
from lingraft.runs import Run
from lingraft.training.history import History


def save_figure(figure: Figure, run: Run, name: str) -> list[Path]:
    """Write a matplotlib figure to figures/NAME.svg and figures/NAME.png, each as a whole; gives the two paths."""
    paths = [run.figures / f"{name}.{kind}" for kind in ("svg", "png")]
    for path in paths:
        with replacing(path) as part:
            figure.savefig(part, format=path.suffix[1:], dpi=150)
    return paths


def plot_history(run: Run, history: History, title: str) -> list[Path]:
    """Loss, and accuracies on validation images, over the epochs: figures/history.{svg,png}."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    epochs = history.epochs
    numbers = [epoch.epoch for epoch in epochs]
    mark = "o" if len(epochs) <= 40 else ""
    left.plot(numbers, [epoch.loss for epoch in epochs], marker=mark, markersize=3, color="tab:gray")
    left.set_ylabel("training loss")
    left.set_ylim(bottom=0)
    right.plot(numbers, [epoch.sa for epoch in epochs], marker=mark, markersize=3, label="standard accuracy (SA)")
    right.plot(numbers, [epoch.ra for epoch in epochs], marker=mark, markersize=3, label="robust accuracy (RA, PGD)")
    certified = [(epoch.epoch, epoch.certified) for epoch in epochs if epoch.certified is not None]
    if certified:
        right.plot(*zip(*certified, strict=True), marker=mark, markersize=3, label="certified by intervals")
    best = history.best
    right.plot(best.epoch, best.ra, "*", markersize=13, color="tab:orange", label=f"kept: epoch {best.epoch}")
    collapsed = [epoch for epoch in epochs if epoch.overfitting]
    if collapsed:
        places = [epoch.epoch for epoch in collapsed], [epoch.ra for epoch in collapsed]
        right.plot(*places, "x", color="tab:red", label="catastrophic overfitting")
    right.set_ylabel("accuracy on validation images")
    right.set_ylim(0, 1)
    right.yaxis.set_major_formatter(PercentFormatter(1))
    right.legend(loc="lower right", fontsize="small")
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    return save_figure(figure, run, "history")


def front_panel(candidates: Sequence[Candidate], chosen: Candidate | None, min_sa: float) -> Panel:
    """VA over SA, a point with its ratio for each candidate; the Pareto front as a line, the SA asked for as another.

    The chosen one has a ring around it.
    """
    measures = list(dict.fromkeys(c.instability for c in candidates))
    edge = front(candidates)
    labels: dict[tuple[float, float], list[str]] = {}  # candidates may share a place
    for c in candidates:
        ratios = labels.setdefault((c.sa, c.va), [])
        ratios += [ratio for ratio in (f"{c.ratio:.0%}",) if ratio not in ratios]

    def draw_on(axes: Any) -> None:
        draw_front(axes, [(c.sa, c.va) for c in edge], min_sa, "verified (VA)")
        for i, measure in enumerate(measures):
            points = [c for c in candidates if c.instability == measure]
            axes.scatter([c.sa for c in points], [c.va for c in points], s=22, color=series(i + 1), label=measure)
        for place, ratios in labels.items():
            axes.annotate(", ".join(ratios), place, xytext=(4, 3), textcoords="offset points", fontsize=7)
        if chosen is not None:
            axes.scatter([chosen.sa], [chosen.va], s=90, facecolors="none", edgecolors=INK, linewidths=1.2)
        legend_below(axes, measures)

    spoken = "; ".join(f"{c}: SA {c.sa:.1%}, VA {c.va:.1%}" for c in edge)
    return Panel("VA over SA", f"Pareto front of the search. {spoken}.", draw_on, HEIGHT + legend_height(measures))


def write_front(run: Run, rounds: Sequence[Sequence[Candidate]], chosen: Candidate | None, min_sa: float) -> list[Path]:
    """search/front.json and .csv of all rounds, figures/front.svg and .png of the last, in the run; their paths."""
    edge = front(rounds[-1])
    rows = [{**c.as_dict(), "front": c in edge, "chosen": c == chosen} for candidates in rounds for c in candidates]
    path, table = run.path / "search" / "front.json", run.path / "search" / "front.csv"
    write_json(path, {"min_sa": min_sa, "candidates": rows})
    with replacing(table) as part, open(part, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return [path, table, *save_figure(draw([front_panel(rounds[-1], chosen, min_sa)]), run, "front")]
