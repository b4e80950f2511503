"""Saving pictures."""

from pathlib import Path
from typing import Any

from lingraft.files import replacing
from lingraft.runs import Run


def save_figure(figure: Any, run: Run, name: str) -> list[Path]:
    """Write a matplotlib figure to figures/NAME.svg and figures/NAME.png, each as a whole; gives the two paths."""
    paths = [run.figures / f"{name}.{kind}" for kind in ("svg", "png")]
    for path in paths:
        with replacing(path) as part:
            figure.savefig(part, format=path.suffix[1:], dpi=150)
    return paths
