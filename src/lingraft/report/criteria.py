"""Figure: which neurons each criterion picks (the paper, Section "Grafting criterion")."""

import math
from typing import Any

import numpy as np

from lingraft.grafting.ranking import flatten
from lingraft.grafting.scores import Scores
from lingraft.grafting.selection import GAMMAS, select
from lingraft.report.colors import POINT, STRONG_POINT
from lingraft.report.panels import Panel
from lingraft.report.points import draw_points

#: what it is called → γ of γ·r_u − r_s, or the stages of falling γ
CRITERIA: dict[str, tuple[float, ...]] = {
    "−rₛ: insignificant": (0.0,),
    "rᵤ − rₛ: both": (1.0,),
    "2rᵤ − rₛ: both": (2.0,),
    "rᵤ: unstable": (math.inf,),
    "in stages, γ = " + ", ".join(f"{gamma:g}" for gamma in GAMMAS): GAMMAS,
}


def picked_by_criterion(scores: Scores, ratio: float = 0.5) -> list[Panel]:
    """One panel a criterion: all neurons by their ranks, and the share `ratio` of them that it picks."""
    return [_panel(scores, ratio, title, gammas) for title, gammas in CRITERIA.items()]


def _panel(scores: Scores, ratio: float, title: str, gammas: tuple[float, ...]) -> Panel:
    unstable, significant = flatten(scores.instability_rank), flatten(scores.significance_rank)
    picked = flatten(select(scores.instability_rank, scores.significance_rank, ratio, gammas))

    def draw(axes: Any) -> None:
        draw_points(axes, unstable, significant, np.where(picked, STRONG_POINT, POINT))
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xticks([0, 0.5, 1])
        axes.set_yticks([0, 0.5, 1])
        axes.grid(False)
        axes.set_xlabel("instability rank rᵤ")
        axes.set_ylabel("significance rank rₛ")

    means = [float(ranks[picked].mean()) if picked.any() else 0.0 for ranks in (unstable, significant)]
    alt = f"{title} picks {ratio:.0%}: mean instability rank {means[0]:.2f}, significance {means[1]:.2f}."
    return Panel(title, alt, draw)
