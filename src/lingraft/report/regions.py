"""Figure: significance over instability of all neurons, with the four regions (the paper, Section 4)."""

from typing import Any

import numpy as np

from lingraft.grafting.ranking import flatten
from lingraft.grafting.scores import Scores
from lingraft.report.colors import INK, POINT, STRONG_POINT
from lingraft.report.panels import Panel
from lingraft.report.points import draw_points

#: name → (significant, unstable), each meaning a rank in the upper half
REGIONS = {"I": (False, False), "II": (True, False), "III": (True, True), "IV": (False, True)}


def region_shares(scores: Scores) -> dict[str, float]:
    """The share of all neurons in each region."""
    unstable, significant = (flatten(ranks) > 0.5 for ranks in (scores.instability_rank, scores.significance_rank))
    return {
        name: float(((significant == high) & (unstable == right)).mean()) for name, (high, right) in REGIONS.items()
    }


def significance_over_instability(scores: Scores, title: str = "significance over instability") -> Panel:
    """Rank of significance r_s over rank of instability r_u, one point a neuron; grafting is after region IV."""
    unstable, significant = flatten(scores.instability_rank), flatten(scores.significance_rank)
    shares = region_shares(scores)

    def draw(axes: Any) -> None:
        fourth = (unstable > 0.5) & (significant <= 0.5)
        draw_points(axes, unstable, significant, np.where(fourth, STRONG_POINT, POINT))
        axes.axhline(0.5, color=INK, linewidth=0.8)
        axes.axvline(0.5, color=INK, linewidth=0.8)
        for name, (high, right) in REGIONS.items():
            x, y = (0.75 if right else 0.25), (1.08 if high else -0.08)
            axes.text(x, y, f"{name}: {shares[name]:.0%}", weight="bold", ha="center", va="center")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.15, 1.15)
        axes.set_xticks([0, 0.5, 1])
        axes.set_yticks([0, 0.5, 1])
        axes.grid(False)
        axes.set_xlabel("instability rank rᵤ")
        axes.set_ylabel("significance rank rₛ")

    shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return Panel(
        title, f"{len(unstable):,} neurons by instability and significance. In the regions: {shown}.", draw, 3.2
    )
