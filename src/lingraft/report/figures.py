"""The figures of a report, each one function: what it shows of the runs, and which commands would add what is missing.

A new figure is a function below that carries `@figure(…)` and nothing else: the page, its list of contents and
`lingraft reproduce` take all figures from `FIGURES`, in this order; `folded=False` puts it at the top of the page, not
under "Details". It is given the runs and gives two dicts:

- heading → panels. {} where the runs have nothing for it: then the page only names the figure among what it lacks;
- what is missing → the command that adds it (`Study.command`).

One of your own can be registered from outside as well, before `lingraft.write_report` is called:

    @figure("depth", "Depth", "Depth of the search", "How deep branch and bound went in each run.")
    def depth(studies: Sequence[Study]) -> Drawn:
        return {study.name: [Panel("depth", "what it shows, in words", draw)] for study in studies}, {}
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from torch import Tensor

from lingraft.grafting.ranking import NeuronValues, flatten
from lingraft.grafting.scores import Scores
from lingraft.grafting.selection import GAMMAS, select
from lingraft.report.accuracies import accuracies
from lingraft.report.colors import INK, POINT, STRONG_POINT, series
from lingraft.report.panels import (
    HEIGHT,
    WIDTH,
    Panel,
    draw_points,
    folded,
    legend_below,
    legend_height,
    plain_numbers,
)
from lingraft.report.scored import alike, before_and_after, scored_networks
from lingraft.report.study import Study, Verification
from lingraft.report.table import show_eps
from lingraft.solver.verifier import Result

#: heading → its panels, and what is missing → the command that adds it
Drawn = tuple[dict[str, list[Panel]], dict[str, str]]

Draw = Callable[[Sequence[Study]], Drawn]

#: run → its results
Results = Mapping[str, Sequence[Result]]

#: run → its colour
Colors = Mapping[str, str]


@dataclass(frozen=True)
class Figure:
    """A part of the page."""

    key: str
    #: in the list of contents
    short: str
    title: str
    #: what to see in it
    text: str
    draw: Draw
    #: under "Details", not at the top of the page
    folded: bool = True


#: key → figure, in the order of the page
FIGURES: dict[str, Figure] = {}


def figure(key: str, short: str, title: str, text: str, *, folded: bool = True) -> Callable[[Draw], Draw]:
    """A decorator: from now on the function is a figure of every report. A key registered again is replaced."""

    def register(draw: Draw) -> Draw:
        FIGURES[key] = Figure(key, short, title, text, draw, folded)
        return draw

    return register


@dataclass(frozen=True)
class Section:
    """A figure as drawn from some runs."""

    figure: Figure
    groups: dict[str, list[Panel]]
    missing: dict[str, str]


def sections(studies: Sequence[Study]) -> list[Section]:
    """All figures: panels where these runs have the data for them, hints where not."""
    return [Section(each, *each.draw(studies)) for each in FIGURES.values()]


# What the summary table shows ---------------------------------------------------------------------------------------


@figure(
    "accuracies",
    "At a glance",
    "At a glance",
    "SA: test images that are classified correctly. RA: those that the attack did not break, which does not mean"
    " that no attack can. VA: images for which it is proven that no change within ε alters the label. What is robust in"
    " truth lies between VA and RA.",
    folded=False,
)
def _accuracies(studies: Sequence[Study]) -> Drawn:
    places: dict[str, dict[str, Mapping[str, float | None]]] = {}
    for row in (row for study in studies for row in study.rows):
        measured = {"sa": row.sa, "ra": row.ra, "va": row.va}
        if row.data is not None and row.eps is not None and any(value is not None for value in measured.values()):
            places.setdefault(_where(row.data, row.eps), {})[row.run] = measured
    missing = {what: command for study in studies for what, command in study.unmeasured.items()}
    return {place: [accuracies(networks)] for place, networks in places.items()}, missing


# What verdicts show -------------------------------------------------------------------------------------------------


@figure(
    "time",
    "Time limit",
    "Verified accuracy over the time limit",
    "How many images would have been proven had the limit been lower. The fewer unstable neurons there"
    " are to branch on, the earlier proofs should come.",
)
def _time_limits(studies: Sequence[Study]) -> Drawn:
    groups = {
        _where(*place): [verified_over_time({n: (v.results, v.limits[1]) for n, v in runs.items()}, _colors(studies))]
        for place, runs in _verified(studies).items()
    }
    return groups, _without_verdicts(studies)


#: Seconds at which the picture of VA over the time limit begins.
FROM = 0.01


def verified_over_time(results: Mapping[str, tuple[Sequence[Result], float]], colors: Colors | None = None) -> Panel:
    """The share of images that are proven within a limit, for each network: its results and the limit they had.

    The paper, Appendix, "Results with the increased verification time".
    """
    shades = colors or {name: series(i) for i, name in enumerate(results)}
    curves = {}
    for name, (of_network, limit) in results.items():
        times = sorted(min(r.seconds, limit) for r in of_network if r.verdict == "verified")
        steps = [(FROM, sum(t <= FROM for t in times) / len(of_network))]
        steps += [(t, (i + 1) / len(of_network)) for i, t in enumerate(times) if t > FROM]
        curves[name] = [*steps, (limit, len(times) / len(of_network))]

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
        axes.set_xlabel("time limit for each image (s)")
        axes.set_ylabel("verified (VA)")
        legend_below(axes, list(curves))

    spoken = "; ".join(f"{name}: {steps[-1][1]:.1%} at {steps[-1][0]:g} s" for name, steps in curves.items())
    alt = f"Share of images proven over the time limit. {spoken}."
    return Panel("VA over the time limit", alt, draw, HEIGHT + legend_height(list(curves)))


@figure(
    "bounds",
    "Lower bounds",
    "Average lower bounds of the margins",
    "The margin of an image is the label's output minus another class's; its lower bound within ε at the root, by CROWN"
    " and by α-CROWN, and where branching ended, for the lowest margin of each image. Above 0 the image is proven; what"
    " branching proves counts as 0, a very negative bound says next to nothing. Only images that all runs of a group"
    " got as far as bounding count. Verdicts of versions before 0.2 do not say where branching ended.",
)
def _lower_bounds(studies: Sequence[Study]) -> Drawn:
    colors = _colors(studies)
    groups = _of_families(studies, lambda r: average_lower_bounds(r, colors) if common_bounds(r)[1] else None)
    return groups, _without_verdicts(studies)


#: Where the bounds are from, and how full their bars are.
_BOUNDS = {"CROWN": 0.35, "α-CROWN": 0.65, "branching": 1.0}


def lowest_bounds(results: Sequence[Result]) -> dict[int, tuple[float, float, float]]:
    """Image → its lowest margin by CROWN, by α-CROWN and after branching, for the images that got as far as bounds.

    What the one before proved is the same after it. NaN: there was branching, and where it ended is not known.
    """
    lowest = {}
    for result in results:
        crown, alpha = result.crown, result.alpha or result.crown
        if crown and all(map(math.isfinite, [*crown, *alpha])):
            if result.branched is not None:
                last = max(min(alpha), result.branched)
            else:
                last = math.nan if result.domains or result.stage == "branch" else min(alpha)
            lowest[result.index] = min(crown), min(alpha), last
    return lowest


def common_bounds(results: Results) -> tuple[dict[str, tuple[float, ...]], int]:
    """Means of `lowest_bounds` for each network on the images that all of them have, and how many these are."""
    lowest = {name: bounds for name, each in results.items() if (bounds := lowest_bounds(each))}
    common = set.intersection(*map(set, lowest.values())) if lowest else set()
    if not common:
        return {}, 0
    means = {name: tuple(map(fmean, zip(*(each[i] for i in common), strict=True))) for name, each in lowest.items()}
    return means, len(common)


def average_lower_bounds(results: Results, colors: Colors | None = None) -> Panel:
    """Mean of the lowest margin's lower bound, for each network: by CROWN, by α-CROWN and, full, after branching.

    The paper, Section 5.
    """
    means, images = common_bounds(results)
    shades = colors or {name: series(i) for i, name in enumerate(means)}

    def draw(axes: Any) -> None:
        for row, (name, values) in enumerate(means.items()):
            bars = zip((-0.27, 0.0, 0.27), values, _BOUNDS.items(), strict=True)
            for place, value, (how, alpha) in bars:
                if math.isnan(value):
                    continue
                axes.barh(row + place, value, 0.25, color=shades[name], alpha=alpha)
                text, beside = f"{how} {value:.3g}".replace(" -", " −"), (max(0.0, value), row + place)
                axes.annotate(text, beside, (3, 0), textcoords="offset points", va="center", fontsize=7.5)
        known = [value for values in means.values() for value in values if not math.isnan(value)]
        low, high, smallest = min(known), max(known), min(map(abs, known))
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

    spoken = "; ".join(
        f"{name}: " + ", ".join(f"{how} {v:.3g}" for how, v in zip(_BOUNDS, values, strict=True) if not math.isnan(v))
        for name, values in means.items()
    )
    alt = f"Mean lower bound of the lowest margin. {spoken}."
    return Panel("average lower bounds", alt, draw, 0.9 + 0.65 * len(means))


@figure(
    "sites",
    "Unstable neurons",
    "Unstable neurons of each site",
    "A neuron is unstable for an image if its input can take both signs within ε: it is these that make a proof"
    " expensive. Grafted neurons are linear and never unstable.",
)
def _unstable_sites(studies: Sequence[Study]) -> Drawn:
    colors = _colors(studies)
    groups = _of_families(
        studies, lambda r: unstable_by_site(r, colors) if any(map(mean_unstable, r.values())) else None
    )
    return groups, _without_verdicts(studies)


def mean_unstable(results: Sequence[Result]) -> dict[str, float]:
    """Site → mean number of unstable neurons, over the images whose neurons were bounded."""
    bounded = [result.unstable for result in results if result.unstable]
    return {site: fmean(counts[site] for counts in bounded) for site in bounded[0]} if bounded else {}


def unstable_by_site(results: Results, colors: Colors | None = None) -> Panel:
    """Mean number of unstable neurons of each site, as bars; one colour for each network."""
    means = {name: mean for name, each in results.items() if (mean := mean_unstable(each))}
    sites = list(next(iter(means.values())))
    shades = colors or {name: series(i) for i, name in enumerate(means)}
    thick = 0.8 / len(means)

    def draw(axes: Any) -> None:
        for i, (name, mean) in enumerate(means.items()):
            places = [row + (i + 0.5) * thick - 0.4 for row in range(len(sites))]
            values = [mean.get(site, 0.0) for site in sites]
            bars = axes.barh(places, values, 0.9 * thick, color=shades[name], label=name)
            axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=2, fontsize=7.5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.set_yticks(range(len(sites)), [folded(f"site {site}") for site in sites])
        axes.invert_yaxis()
        axes.margins(x=0.16)
        axes.grid(False, axis="y")
        axes.set_xlabel("unstable neurons, mean over the images")
        legend_below(axes, list(means))

    height = 0.9 + 0.22 * len(sites) * max(2, len(means)) + legend_height(list(means))
    spoken = "; ".join(f"{name}: {sum(mean.values()):,.0f} in all" for name, mean in means.items())
    alt = f"Mean number of unstable neurons for an image. {spoken}."
    return Panel("unstable neurons of each site", alt, draw, height)


def _colors(studies: Sequence[Study]) -> Colors:
    """The same for a run in every figure."""
    return {study.name: series(i) for i, study in enumerate(studies)}


def _families(studies: Sequence[Study]) -> list[list[Study]]:
    """Every run that was not grafted from another one, followed by those that were grafted from it."""
    families: dict[str, list[Study]] = {}
    for study in sorted(studies, key=lambda study: study.parent is not None):
        root = study
        while root.parent is not None:
            root = root.parent
        families.setdefault(root.name, []).append(study)
    return list(families.values())


def _verified(studies: Sequence[Study]) -> Mapping[tuple[str, float | str], Mapping[str, Verification]]:
    """(data set, ε) → the runs verified there."""
    places: dict[tuple[str, float | str], dict[str, Verification]] = {}
    for study in studies:
        for verification in study.verifications:
            places.setdefault((verification.data, verification.eps), {})[study.name] = verification
    return places


def _where(data: str, eps: float | str) -> str:
    return f"{data}, ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{show_eps(eps)}"


def _of_families(studies: Sequence[Study], draw: Callable[[Results], Panel | None]) -> dict[str, list[Panel]]:
    """One panel for each family, data set and ε; `draw` gives None where the results have nothing to show."""
    groups = {}
    for family in _families(studies):
        for place, runs in _verified(family).items():
            panel = draw({name: verification.results for name, verification in runs.items()})
            if panel is not None:
                groups[f"{family[0].name}: {_where(*place)}"] = [panel]
    return groups


def _without_verdicts(studies: Sequence[Study]) -> dict[str, str]:
    """What is missing of verdicts → the command that adds it."""
    return {
        f"{study.name} has no verdicts.": study.command("verify", "--images", "100")
        for study in studies
        if not study.verifications
    }


# What scores show ---------------------------------------------------------------------------------------------------


@figure(
    "histograms",
    "Histograms",
    "How often neurons are unstable, before and after grafting",
    "How many neurons (on a logarithmic axis) are unstable for how many of the images that were bounded: test images,"
    " where they were scored, else training images."
    " In the paper, grafting pushes the distribution towards 0.",
)
def _histograms(studies: Sequence[Study]) -> Drawn:
    counted: dict[str, tuple[int, dict[str, NeuronValues]]] = {}
    missing = {}
    for study in (study for family in _families(studies) for study in family if study.grafted_share):
        before, after = before_and_after(study)
        name = study.parent.name if study.parent else f"before {study.name}"
        if before is None or before.instability is None:
            if study.parent is not None:
                missing[f"{name} has no scores."] = study.parent.command("score")
        elif after is None or after.instability is None or not alike(before, after):
            missing[f"{study.name} has no scores of the grafted network."] = _score_like(study, before)
        else:
            images = int(before.facts["bound_images"])
            of = before.facts.get("split", "training")
            heading = f"{name}, {images} {of} images, ε = {show_eps(before.facts['eps'])}"
            counted.setdefault(heading, (images, {name: before.instability}))[1][study.name] = after.instability
    colors = _colors(studies)
    groups = {
        heading: unstable_histograms(counts, images, {name: colors.get(name, series(0)) for name in counts})
        for heading, (images, counts) in counted.items()
    }
    return groups, missing | _without_grafts(studies)


def _score_like(study: Study, like: Scores) -> str:
    """The command that scores a grafted network as the one before it was scored."""
    facts = like.facts
    options = ["--bound-images", str(facts["bound_images"]), "--bounds", facts["bounds"]]
    if not isinstance(facts["eps"], str):  # a tensor is that of the run
        options += ["--eps", f"{facts['eps']!r}"]
    return study.command("score", "-o", str(study.run.grafted_scores_path), *options)


BINS = 20


def unstable_histograms(counts: Mapping[str, NeuronValues], images: int, colors: Colors | None = None) -> list[Panel]:
    """All neurons, then one panel for each site: how many neurons (log) are unstable for how many of `images` images.

    `counts` maps what a network is called, the one before grafting first, to the counts of its neurons; grafted neurons
    are never unstable. The paper, Section 5.
    """
    first = next(iter(counts.values()))
    whole = {name: flatten(values) for name, values in counts.items()}
    sites = {site: {name: flatten({site: values[site]}) for name, values in counts.items()} for site in first}
    shades = colors or {name: series(i) for i, name in enumerate(counts)}
    return [
        _histogram("all sites", whole, images, shades),
        *(_histogram(f"site {site}", parts, images, shades) for site, parts in sites.items()),
    ]


def _histogram(title: str, counts: Mapping[str, np.ndarray], images: int, colors: Colors) -> Panel:
    edges = np.linspace(0, images, min(BINS, images) + 1)

    def draw(axes: Any) -> None:
        for i, (name, values) in enumerate(counts.items()):
            if i == 0:
                axes.hist(values, edges, color=colors[name], alpha=0.45, label=name)
            else:
                axes.hist(values, edges, histtype="step", linewidth=1.5, color=colors[name], label=name)
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        plain_numbers(axes.yaxis)
        axes.set_xlim(0, images)
        axes.set_xlabel("images for which a neuron is unstable")
        axes.set_ylabel("neurons")
        legend_below(axes, list(counts))

    means = "; ".join(f"{name}: {values.mean() / images:.1%} on average" for name, values in counts.items())
    height = HEIGHT + legend_height(list(counts))
    return Panel(title, f"Histogram of unstable neurons, {title}. Unstable: {means}.", draw, height)


@figure(
    "regions",
    "Regions",
    "Significance over instability",
    "Every neuron by two ranks: rᵤ, for how many images it is unstable, and rₛ, how much the loss feels it. Halved"
    " on both axes there are four regions: I insignificant and stable, II significant and stable, III significant"
    " and unstable, IV insignificant and unstable, which is what grafting looks for (marked).",
)
def _regions(studies: Sequence[Study]) -> Drawn:
    panels = [significance_over_instability(scores, name) for name, (scores, _) in scored_networks(studies).items()]
    return {"": panels} if panels else {}, _without_scores(studies)


#: name → (significant, unstable), each meaning a rank in the upper half
REGIONS = {"I": (False, False), "II": (True, False), "III": (True, True), "IV": (False, True)}


def region_shares(scores: Scores) -> dict[str, float]:
    """The share of all neurons in each region."""
    unstable, significant = (flatten(ranks) > 0.5 for ranks in (scores.instability_rank, scores.significance_rank))
    return {
        name: float(((significant == high) & (unstable == right)).mean()) for name, (high, right) in REGIONS.items()
    }


def significance_over_instability(scores: Scores, title: str = "significance over instability") -> Panel:
    """Rank of significance r_s over rank of instability r_u, a point for each neuron; grafting is after region IV.

    The paper, Section 4.
    """
    unstable, significant = flatten(scores.instability_rank), flatten(scores.significance_rank)
    shares = region_shares(scores)

    def draw(axes: Any) -> None:
        _draw_ranks(axes, unstable, significant, (unstable > 0.5) & (significant <= 0.5))
        axes.axhline(0.5, color=INK, linewidth=0.8)
        axes.axvline(0.5, color=INK, linewidth=0.8)
        for name, (high, right) in REGIONS.items():
            x, y = (0.75 if right else 0.25), (1.08 if high else -0.08)
            axes.text(x, y, f"{name}: {shares[name]:.0%}", weight="bold", ha="center", va="center")
        axes.set_ylim(-0.15, 1.15)

    shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    alt = f"{len(unstable):,} neurons by instability and significance. In the regions: {shown}."
    return Panel(title, alt, draw, 3.2)


@figure(
    "criteria",
    "Criteria",
    "Neurons picked by each criterion",
    "The same neurons; marked are those that a criterion would graft. The more rᵤ weighs, the more unstable"
    " neurons are picked; the less it weighs, the less significant ones.",
)
def _criteria(studies: Sequence[Study]) -> Drawn:
    groups = {}
    for name, (scores, holders) in scored_networks(studies).items():
        ratio = next((study.grafted_share for study in holders if study.grafted_share), 0.5)
        groups[f"{name}, {ratio:.0%} of the neurons"] = picked_by_criterion(scores, ratio)
    return groups, _without_scores(studies)


#: what it is called → γ of γ·r_u − r_s, or the stages of falling γ
CRITERIA: dict[str, tuple[float, ...]] = {
    "−rₛ: insignificant": (0.0,),
    "rᵤ − rₛ: both": (1.0,),
    "2rᵤ − rₛ: both": (2.0,),
    "rᵤ: unstable": (math.inf,),
    "in stages, γ = " + ", ".join(f"{gamma:g}" for gamma in GAMMAS): GAMMAS,
}


def picked_by_criterion(scores: Scores, ratio: float = 0.5) -> list[Panel]:
    """One panel for each criterion: all neurons by their ranks, and the share `ratio` of them that it picks.

    The paper, Section "Grafting criterion".
    """
    return [_picked(scores, ratio, title, gammas) for title, gammas in CRITERIA.items()]


def _picked(scores: Scores, ratio: float, title: str, gammas: tuple[float, ...]) -> Panel:
    unstable, significant = flatten(scores.instability_rank), flatten(scores.significance_rank)
    picked = flatten(select(scores.instability_rank, scores.significance_rank, ratio, gammas))

    def draw(axes: Any) -> None:
        _draw_ranks(axes, unstable, significant, picked)

    means = [float(ranks[picked].mean()) if picked.any() else 0.0 for ranks in (unstable, significant)]
    alt = f"{title} picks {ratio:.0%}: mean instability rank {means[0]:.2f}, significance {means[1]:.2f}."
    return Panel(title, alt, draw)


def _draw_ranks(axes: Any, unstable: np.ndarray, significant: np.ndarray, marked: np.ndarray) -> None:
    """A point for each neuron."""
    draw_points(axes, unstable, significant, np.where(marked, STRONG_POINT, POINT))
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xticks([0, 0.5, 1])
    axes.set_yticks([0, 0.5, 1])
    axes.grid(False)
    axes.set_xlabel("instability rank rᵤ")
    axes.set_ylabel("significance rank rₛ")


def _without_scores(studies: Sequence[Study]) -> dict[str, str]:
    """What is missing of scores → the command that adds it; a network may have been scored for a child."""
    parents = [study.parent for study in studies if study.scores is not None]
    return {
        f"{study.name} has no scores.": study.command("score")
        for study in studies
        if not study.grafted_share and study.scores is None and study not in parents
    }


# What grafts show ---------------------------------------------------------------------------------------------------


@figure(
    "masks",
    "Masks",
    "Masks",
    "Which neurons are grafted: one dot for each neuron, the channels of a convolution side by side.",
)
def _masks(studies: Sequence[Study]) -> Drawn:
    groups = {study.name: panels for study in studies if (panels := mask_pictures(study.masks))}
    return groups, _without_grafts(studies)


def mask_pictures(masks: Mapping[str, Tensor]) -> list[Panel]:
    """One panel for each site: a dot for each neuron, bright where it is grafted; channels side by side.

    The paper, Section "Visualization of grafting mask".
    """
    return [_mask(site, mask.cpu().numpy()) for site, mask in masks.items()]


def tiled(mask: np.ndarray) -> np.ndarray:
    """A mask of any shape as a picture: 1 grafted, 0 not, −1 no neuron. (C, H, W) becomes tiles with gaps between."""
    if mask.ndim == 3:
        channels, height, width = mask.shape
        columns = math.ceil(math.sqrt(channels * 1.6 * height / width))
        rows = math.ceil(channels / columns)
        picture = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1), -1, dtype=np.int8)
        for i, channel in enumerate(mask):
            top, left = i // columns * (height + 1), i % columns * (width + 1)
            picture[top : top + height, left : left + width] = channel
        return picture
    flat = mask.ravel()
    columns = math.ceil(math.sqrt(2.5 * len(flat)))
    picture = np.full(math.ceil(len(flat) / columns) * columns, -1, dtype=np.int8)
    picture[: len(flat)] = flat
    return picture.reshape(-1, columns)


def _mask(site: str, mask: np.ndarray) -> Panel:
    picture = tiled(mask)

    def draw(axes: Any) -> None:
        colors = np.array([to_rgba(POINT, 0.45), to_rgba(STRONG_POINT), (0, 0, 0, 0)])
        axes.imshow(colors[picture], interpolation="none", aspect="equal")
        axes.set_axis_off()

    share, shape = mask.mean(), "×".join(map(str, mask.shape))
    height = min(3.2, max(0.4, WIDTH * picture.shape[0] / picture.shape[1]))
    alt = f"Mask of site {site}: {int(mask.sum()):,} of {mask.size:,} neurons are grafted."
    return Panel(f"site {site}, {shape}: {share:.0%} grafted", alt, draw, height)


@figure(
    "lines",
    "Slopes",
    "Learned slope over intercept",
    "The line a·x + b that training found for each grafted neuron; dotted are the medians.",
)
def _lines(studies: Sequence[Study]) -> Drawn:
    groups = {study.name: panels for study in studies if (panels := slope_over_intercept(study.lines))}
    return groups, _without_grafts(studies)


def slope_over_intercept(lines: Mapping[str, tuple[Tensor, Tensor]]) -> list[Panel]:
    """One panel for each site of `lines`: site → slopes and intercepts of its grafted neurons, each (n,).

    The paper, Section "Visualization of grafting mask".
    """
    arrays = {site: [values.detach().cpu().numpy() for values in pair] for site, pair in lines.items()}
    return [_slopes(site, *pair) for site, pair in arrays.items() if len(pair[0])]


def _slopes(site: str, slopes: np.ndarray, intercepts: np.ndarray) -> Panel:
    slope, intercept = float(np.median(slopes)), float(np.median(intercepts))

    def draw(axes: Any) -> None:
        draw_points(axes, intercepts, slopes, STRONG_POINT)
        axes.axhline(slope, color=INK, linewidth=0.8, linestyle=":")
        axes.axvline(intercept, color=INK, linewidth=0.8, linestyle=":")
        axes.set_xlabel("intercept b")
        axes.set_ylabel("slope a")

    title = f"site {site}: median a = {slope:.2f}, b = {intercept:.2f}"
    low, high = np.quantile(slopes, [0.1, 0.9])
    spread = f"Four fifths of the slopes lie between {low:.2f} and {high:.2f}."
    return Panel(title, f"Slope over intercept of {len(slopes):,} neurons of {title}. {spread}", draw)


def _without_grafts(studies: Sequence[Study]) -> dict[str, str]:
    """What is missing of grafted runs → the command that adds one."""
    if any(study.grafted_share for study in studies):
        return {}
    return {"No grafted run is part of this report.": studies[0].command("graft", "--ratio", "0.5")}
