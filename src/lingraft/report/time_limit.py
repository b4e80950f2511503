"""Figure: VA over the time limit (the paper, Appendix, "Results with the increased verification time")."""

from collections.abc import Mapping, Sequence
from typing import Any

from lingraft.report.colors import series
from lingraft.report.panels import HEIGHT, Panel, legend_below, legend_height, plain_numbers
from lingraft.solver.verifier import Result

#: Seconds at which the picture begins.
FROM = 0.01


def verified_over_time(
    results: Mapping[str, tuple[Sequence[Result], float]], colors: Mapping[str, str] | None = None
) -> Panel:
    """The share of images that are proven within a limit, for each network: its results and the limit they had."""
    shades = colors or {name: series(i) for i, name in enumerate(results)}
    curves = {}
    for name, (found, limit) in results.items():
        times = sorted(min(r.seconds, limit) for r in found if r.verdict == "verified")
        steps = [(FROM, sum(t <= FROM for t in times) / len(found))]
        steps += [(t, (i + 1) / len(found)) for i, t in enumerate(times) if t > FROM]
        curves[name] = [*steps, (limit, len(times) / len(found))]

    def draw(axes: Any) -> None:
        for name, steps in curves.items():
            axes.step(*zip(*steps, strict=True), where="post", color=shades[name], linewidth=1.8, label=name)
            axes.plot(*steps[-1], "o", markersize=4, color=shades[name], clip_on=False)
        axes.set_xscale("log")
        axes.set_xlim(left=FROM)
        highest = max(va for steps in curves.values() for _, va in steps)
        axes.set_ylim(0, min(1.0, highest * 1.15 + 0.02))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        plain_numbers(axes.xaxis)
        axes.set_xlabel("time limit an image (s)")
        axes.set_ylabel("verified (VA)")
        legend_below(axes, list(curves))

    spoken = "; ".join(f"{name}: {steps[-1][1]:.1%} at {steps[-1][0]:g} s" for name, steps in curves.items())
    return Panel(
        "VA over the time limit",
        f"Share of images proven over the time limit. {spoken}.",
        draw,
        HEIGHT + legend_height(list(curves)),
    )
