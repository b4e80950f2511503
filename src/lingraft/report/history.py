"""The picture of a training history."""

from pathlib import Path

from lingraft.report.figures import save_figure
from lingraft.runs import Run
from lingraft.training.history import History


def plot_history(run: Run, history: History, title: str) -> list[Path]:
    """Loss, and accuracies on validation images, over the epochs: figures/history.{svg,png}."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

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
