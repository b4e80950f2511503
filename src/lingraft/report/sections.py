"""The figures of a report: what each needs of the runs, and which command would add what is missing."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lingraft.grafting.ranking import NeuronValues
from lingraft.grafting.scores import Scores
from lingraft.report.colors import series
from lingraft.report.criteria import picked_by_criterion
from lingraft.report.lines import slope_over_intercept
from lingraft.report.margins import average_lower_bounds, common_bounds
from lingraft.report.masks import mask_pictures
from lingraft.report.panels import Panel
from lingraft.report.regions import significance_over_instability
from lingraft.report.scored import alike, before_and_after, scored
from lingraft.report.study import Study, Verification
from lingraft.report.table import show_eps
from lingraft.report.time_limit import verified_over_time
from lingraft.report.unstable import unstable_histograms
from lingraft.report.unstable_sites import mean_unstable, unstable_by_site
from lingraft.solver.verifier import Result


@dataclass
class Section:
    """A part of the page: panels under headings, and commands that would add to it."""

    key: str
    #: in the list of contents
    short: str
    title: str
    text: str
    groups: dict[str, list[Panel]] = field(default_factory=dict)
    #: what is missing → the command that adds it
    missing: dict[str, str] = field(default_factory=dict)


#: (data set, ε) → the runs verified there
Verified = Mapping[tuple[str, float], Mapping[str, Verification]]

#: run → its results
Results = Mapping[str, Sequence[Result]]


def sections(studies: Sequence[Study]) -> list[Section]:
    """All figures that these runs have the data for, and hints for the others."""
    colors = {study.name: series(i) for i, study in enumerate(studies)}
    families = _families(studies)
    return [
        _time_limit(studies, colors),
        _margins(studies, families, colors),
        _unstable_sites(studies, families, colors),
        _histograms(families, colors),
        _regions(studies),
        _criteria(studies),
        _masks(studies),
        _lines(studies),
    ]


def _families(studies: Sequence[Study]) -> list[list[Study]]:
    """Every run that was not grafted from another one, followed by those that were grafted from it."""
    families: dict[str, list[Study]] = {}
    for study in sorted(studies, key=lambda study: study.parent is not None):
        root = study
        while root.parent is not None:
            root = root.parent
        families.setdefault(root.name, []).append(study)
    return list(families.values())


def _verified(studies: Sequence[Study]) -> Verified:
    found: dict[tuple[str, float], dict[str, Verification]] = {}
    for study in studies:
        for verification in study.verifications:
            found.setdefault((verification.data, verification.eps), {})[study.name] = verification
    return found


def _where(data: str, eps: float) -> str:
    return f"{data}, ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{show_eps(eps)}"


def _add_families(section: Section, families: list[list[Study]], draw: Callable[[Results], Panel | None]) -> None:
    """One panel for each family, data set and ε; `draw` gives None where the results have nothing to show."""
    for family in families:
        for where, found in _verified(family).items():
            panel = draw({name: each.results for name, each in found.items()})
            if panel is not None:
                section.groups[f"{family[0].name}: {_where(*where)}"] = [panel]


def _add_verdicts(section: Section, studies: Sequence[Study]) -> None:
    for study in studies:
        if not study.verifications:
            section.missing[f"{study.name} has no verdicts."] = _line("verify", study, "--images", "100")


def unmeasured(studies: Sequence[Study]) -> dict[str, str]:
    """What the summary table lacks → the command that adds it."""
    missing = {}
    for study in studies:
        places: list[tuple[str | None, float | None]] = [(found.data, found.eps) for found in study.verifications]
        for data, eps in places or [(study.description.data, study.description.eps)]:
            if data is not None and eps is not None and not study.evaluation(data, eps):
                options = ["--eps", show_eps(eps)] if eps != study.description.eps else []
                options += ["--data", data] if data != study.description.data else []
                what = f"{study.name} has no SA and RA at ε = {show_eps(eps)}."
                missing[what] = _line("evaluate", study, *options)
    return missing


def _line(command: str, study: Study, *options: str) -> str:
    return shlex.join(["lingraft", command, str(study.run.path), *options])


def _time_limit(studies: Sequence[Study], colors: Mapping[str, str]) -> Section:
    section = Section(
        "time",
        "Time limit",
        "Verified accuracy over the time limit",
        "How many images would have been proven had the limit been lower. The fewer unstable neurons there"
        " are to branch on, the earlier proofs should come.",
    )
    for where, found in _verified(studies).items():
        curves = {name: (each.results, each.limits[1]) for name, each in found.items()}
        section.groups[_where(*where)] = [verified_over_time(curves, colors)]
    _add_verdicts(section, studies)
    return section


def _margins(studies: Sequence[Study], families: list[list[Study]], colors: Mapping[str, str]) -> Section:
    section = Section(
        "bounds",
        "Lower bounds",
        "Average lower bounds of the margins",
        "The margin of an image is the label's output minus another class's; its lower bound within ε at the root,"
        " before any branching, for the lowest margin of each image. Above 0 the image is proven at once; a very"
        " negative bound says next to nothing. Only images that all runs of a group got as far as bounding count.",
    )
    _add_families(section, families, lambda r: average_lower_bounds(r, colors) if common_bounds(r)[1] else None)
    _add_verdicts(section, studies)
    return section


def _unstable_sites(studies: Sequence[Study], families: list[list[Study]], colors: Mapping[str, str]) -> Section:
    section = Section(
        "sites",
        "Unstable neurons",
        "Unstable neurons of each site",
        "A neuron is unstable for an image if its input can take both signs within ε: it is these that make a proof"
        " expensive. Grafted neurons are linear and never unstable.",
    )
    _add_families(
        section, families, lambda r: unstable_by_site(r, colors) if any(map(mean_unstable, r.values())) else None
    )
    _add_verdicts(section, studies)
    return section


def _histograms(families: list[list[Study]], colors: Mapping[str, str]) -> Section:
    section = Section(
        "histograms",
        "Histograms",
        "How often neurons are unstable, before and after grafting",
        "How many neurons (on a logarithmic axis) are unstable for how many of the training images that were bounded."
        " In the paper, grafting pushes the distribution towards 0.",
    )
    collected: dict[str, tuple[int, dict[str, NeuronValues]]] = {}
    for family in families:
        for study in family:
            if not study.grafted_share:
                continue
            before, after = before_and_after(study)
            name = study.parent.name if study.parent else f"before {study.name}"
            if before is None or before.instability is None:
                if study.parent is not None:
                    section.missing[f"{name} has no scores."] = _line("score", study.parent)
                continue
            if after is None or after.instability is None or not alike(before, after):
                section.missing[f"{study.name} has no scores of the grafted network."] = _score_line(study, before)
                continue
            images = int(before.facts["bound_images"])
            heading = f"{name}, {images} images, ε = {show_eps(before.facts['eps'])}"
            collected.setdefault(heading, (images, {name: before.instability}))[1][study.name] = after.instability
    for heading, (images, counts) in collected.items():
        shades = {name: colors.get(name, series(0)) for name in counts}
        section.groups[heading] = unstable_histograms(counts, images, shades)
    if not any(study.grafted_share for family in families for study in family):
        first = families[0][0]
        section.missing["No grafted run is part of this report."] = _line("graft", first, "--ratio", "0.5")
    return section


def _score_line(study: Study, like: Scores) -> str:
    """The command that scores a grafted network as the one before it was scored."""
    facts = like.facts
    options = ("--bound-images", str(facts["bound_images"]), "--bounds", facts["bounds"], "--eps", f"{facts['eps']!r}")
    return _line("score", study, "-o", str(study.run.grafted_scores_path), *options)


def _add_scores(section: Section, studies: Sequence[Study]) -> None:
    for study in studies:
        children = [child for child in studies if child.parent is study and child.scores is not None]
        if not study.grafted_share and study.scores is None and not children:
            section.missing[f"{study.name} has no scores."] = _line("score", study)


def _regions(studies: Sequence[Study]) -> Section:
    section = Section(
        "regions",
        "Regions",
        "Significance over instability",
        "Every neuron by two ranks: rᵤ, for how many images it is unstable, and rₛ, how much the loss feels it. Halved"
        " on both axes there are four regions: I insignificant and stable, II significant and stable, III significant"
        " and unstable, IV insignificant and unstable, which is what grafting looks for (marked).",
    )
    for name, (scores, _) in scored(studies).items():
        section.groups.setdefault("", []).append(significance_over_instability(scores, name))
    _add_scores(section, studies)
    return section


def _criteria(studies: Sequence[Study]) -> Section:
    section = Section(
        "criteria",
        "Criteria",
        "Neurons picked by each criterion",
        "The same neurons; marked are those that a criterion would graft. The more rᵤ weighs, the more unstable"
        " neurons are picked; the less it weighs, the less significant ones.",
    )
    for name, (scores, holders) in scored(studies).items():
        ratio = next((study.grafted_share for study in holders if study.grafted_share), 0.5)
        section.groups[f"{name}, {ratio:.0%} of the neurons"] = picked_by_criterion(scores, ratio)
    _add_scores(section, studies)
    return section


def _masks(studies: Sequence[Study]) -> Section:
    section = Section(
        "masks",
        "Masks",
        "Masks",
        "Which neurons are grafted: one dot a neuron, the channels of a convolution side by side.",
    )
    _add_grafted(section, studies, lambda study: mask_pictures(study.masks))
    return section


def _lines(studies: Sequence[Study]) -> Section:
    section = Section(
        "lines",
        "Slopes",
        "Learned slope over intercept",
        "The line a·x + b that training found for each grafted neuron; dotted are the medians.",
    )
    _add_grafted(section, studies, lambda study: slope_over_intercept(study.lines))
    return section


def _add_grafted(section: Section, studies: Sequence[Study], draw: Callable[[Study], list[Panel]]) -> None:
    for study in studies:
        if panels := draw(study):
            section.groups[study.name] = panels
    if not any(study.grafted_share for study in studies):
        section.missing["No grafted run is part of this report."] = _line("graft", studies[0], "--ratio", "0.5")
