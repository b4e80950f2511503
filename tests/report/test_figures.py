"""The figures show what they claim."""

import re
from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from lingraft.errors import LingraftError
from lingraft.grafting import Scores
from lingraft.report.figures import (
    CRITERIA,
    average_lower_bounds,
    common_bounds,
    mask_pictures,
    mean_unstable,
    picked_by_criterion,
    region_shares,
    significance_over_instability,
    slope_over_intercept,
    tiled,
    unstable_by_site,
    unstable_histograms,
    verified_over_time,
)
from lingraft.report.panels import Panel, draw, inline_svg
from lingraft.solver.verifier import Result


@pytest.fixture
def scores() -> Scores:
    generator = torch.Generator().manual_seed(0)
    shapes = {"conv": (3, 4, 4), "linear": (20,)}
    return Scores(
        {name: torch.rand(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()},
        {name: torch.randint(0, 11, shape, generator=generator).double() for name, shape in shapes.items()},
        {"bound_images": 10},
    )


def drawn(panel: Panel) -> object:
    """The axes after drawing."""
    axes = Figure().subplots()
    panel.draw(axes)
    return axes


def test_regions_share_all_neurons(scores: Scores) -> None:
    shares = region_shares(scores)
    assert sum(shares.values()) == pytest.approx(1)
    ranks = [
        torch.cat([r.ravel() for r in each.values()]) for each in (scores.instability_rank, scores.significance_rank)
    ]
    assert shares["IV"] == pytest.approx(((ranks[0] > 0.5) & (ranks[1] <= 0.5)).double().mean().item())
    assert f"IV {shares['IV']:.0%}" in significance_over_instability(scores).alt


def test_criteria_pick_what_they_are_called(scores: Scores) -> None:
    means = {}
    for panel in picked_by_criterion(scores, 0.3):
        means[panel.title] = [float(x) for x in re.findall(r"(?:rank|significance) ([\d.]+\d)", panel.alt)]
    assert list(means) == list(CRITERIA)
    unstable, significant = zip(*means.values(), strict=True)
    assert significant[0] == min(significant), "−r_s picks the least significant"
    assert unstable[3] == max(unstable), "r_u picks the most unstable"
    assert unstable[0] < unstable[1] <= unstable[2] <= unstable[3]


def test_histograms_count_neurons(scores: Scores) -> None:
    after = {name: values * 0 for name, values in scores.instability.items()}
    panels = unstable_histograms({"before": scores.instability, "after": after}, 10)
    assert [panel.title for panel in panels] == ["all sites", "site conv", "site linear"]
    axes = drawn(panels[0])
    heights = [bar.get_height() for bar in axes.patches if hasattr(bar, "get_height")]
    assert sum(heights) == 68
    assert "after: 0.0% on average" in panels[0].alt


def result(index: int, verdict: str = "verified", seconds: float = 0.1, **more: object) -> Result:
    return Result(verdict, "crown", index=index, seconds=seconds, **more)


def test_average_bounds_are_of_the_images_that_all_have() -> None:
    first = [result(0, crown=[1.0, -2.0], alpha=[1.0, -1.0]), result(1, crown=[9.0]), result(2)]
    second = [result(0, crown=[3.0]), result(3, crown=[-100.0]), result(1, crown=[float("nan")])]
    means, images = common_bounds({"a": first, "b": second})
    assert images == 1
    assert means == {"a": (-2.0, -1.0, -1.0), "b": (3.0, 3.0, 3.0)}
    assert "α-CROWN -1" in average_lower_bounds({"a": first, "b": second}).alt
    assert common_bounds({"a": [result(2)]}) == ({}, 0)


def test_bounds_after_branching_are_shown_where_they_are_known() -> None:
    told = [result(0, crown=[-2.0], alpha=[-1.0], domains=6, branched=-0.25), result(1, crown=[-1.0], branched=0.0)]
    assert common_bounds({"a": told}) == ({"a": (-1.5, -1.0, -0.125)}, 2)
    assert "branching -0.125" in average_lower_bounds({"a": told}).alt
    older = [result(0, crown=[-2.0], alpha=[-1.0], domains=6)]
    panel = average_lower_bounds({"a": older})
    assert "branching" not in panel.alt
    assert len(drawn(panel).patches) == 2


def test_unstable_neurons_are_averaged_over_bounded_images() -> None:
    found = [result(0, unstable={"a": 4, "b": 0}), result(1, unstable={"a": 2, "b": 1}), result(2)]
    assert mean_unstable(found) == {"a": 3.0, "b": 0.5}
    assert mean_unstable([result(0)]) == {}
    axes = drawn(unstable_by_site({"net": found}))
    assert [bar.get_width() for bar in axes.patches] == [3.0, 0.5]


def test_va_over_time_ends_at_va() -> None:
    found = [result(i, seconds=s) for i, s in enumerate((0.02, 0.5, 5.01))] + [result(9, "unknown", 5.0)]
    axes = drawn(verified_over_time({"net": (found, 5.0)}))
    times, shares = axes.lines[0].get_data()
    assert list(shares) == [0, 0.25, 0.5, 0.75, 0.75]
    assert times[-1] == 5.0
    assert np.all(np.diff(times) >= 0)
    nothing = drawn(verified_over_time({"net": ([result(0, "unknown", 1.0)], 1.0)}))
    assert list(nothing.lines[0].get_ydata()) == [0, 0]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 2**31))
def test_tiles_show_every_neuron_once(shape: list[int], seed: int) -> None:
    mask = np.random.default_rng(seed).random(shape) < 0.5
    picture = tiled(mask)
    assert (picture == 1).sum() == mask.sum()
    assert (picture == 0).sum() == (~mask).sum()


def test_lines_leave_out_sites_without_grafted_neurons() -> None:
    lines = {"a": (torch.tensor([0.1, 0.3, 0.2]), torch.zeros(3)), "b": (torch.zeros(0), torch.zeros(0))}
    (panel,) = slope_over_intercept(lines)
    assert panel.title == "site a: median a = 0.20, b = 0.00"


def test_panels_make_one_figure(scores: Scores) -> None:
    panels = [*picked_by_criterion(scores), *mask_pictures({"conv": scores.significance["conv"] > 0.5})]
    figure = draw(panels, columns=4)
    assert [axes.get_title() for axes in figure.axes[:6]] == [panel.title for panel in panels]
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    with pytest.raises(LingraftError, match="nothing to draw"):
        draw([])


def test_svg_takes_its_colours_from_the_page(scores: Scores) -> None:
    svg = inline_svg(unstable_histograms({"before": scores.instability}, 10)[0], "x")
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    assert "var(--ink)" in svg
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= {"#000000", "#ffffff"}
    assert all(name.startswith("x-") for name in re.findall(r'id="([^"]*)"', svg))
    again = inline_svg(unstable_histograms({"before": scores.instability}, 10)[0], "x")
    assert svg == again, "the same runs give the same page"


def test_words_in_a_picture_are_escaped() -> None:
    panel = Panel("t", 'a "quoted" <b>', lambda axes: axes.set_title("<i>"))
    svg = inline_svg(panel, "x")
    assert 'aria-label="a &quot;quoted&quot; &lt;b&gt;"' in svg
    assert "<i>" not in svg
