"""The HTML page: one file that needs nothing else."""

import platform
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lingraft.report.browser import verdict_browser
from lingraft.report.colors import COLORS
from lingraft.report.figures import Section, sections
from lingraft.report.headline import headline
from lingraft.report.panels import inline_svg
from lingraft.report.study import Study
from lingraft.report.table import COLUMNS, NUMBERS, Row, comma_separated, show
from lingraft.runs import versions
from lingraft.runs.summary import VERDICTS

#: verdict → (sign, what it means)
MEANING = {
    "verified": ("✓", "no change within ε alters the label: proven"),
    "falsified": ("✗", "a witness within ε has another label"),
    "unknown": ("?", "neither proven nor refuted within the limits"),
    "misclassified": ("!", "wrong without any change"),
}


def render(studies: Sequence[Study]) -> str:
    """The whole page of these runs."""
    environment = Environment(
        loader=PackageLoader("lingraft.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    table = [row for study in studies for row in study.rows]
    parts = sections(studies)
    return environment.get_template("page.html").render(
        title=_title(studies, table),
        colors=COLORS,
        columns=COLUMNS,
        numbers=NUMBERS,
        rows=[{"row": row, "cells": {name: show(row, name) for name in COLUMNS}} for row in table],
        csv=quote(comma_separated(table)),
        headline=headline(studies),
        verdicts=VERDICTS,
        meaning=MEANING,
        top=[_drawn(section) for section in parts if section.groups and not section.figure.folded],
        folded=[_drawn(section) for section in parts if section.groups and section.figure.folded],
        absent=[section for section in parts if not section.groups],
        browser=verdict_browser(studies),
        studies=[_about(study) for study in studies],
        made_with={**versions(), "system": f"{platform.system()} {platform.machine()}"},
    )


def _drawn(section: Section) -> dict[str, Any]:
    """The panels as SVG, under their headings; where each heading has one panel, it becomes that panel's caption."""
    single = all(len(panels) == 1 for panels in section.groups.values())
    groups: list[tuple[str, list[tuple[str, Markup]]]] = [("", [])] if single else []
    for g, (heading, panels) in enumerate(section.groups.items()):
        drawn = [Markup(inline_svg(panel, f"{section.figure.key}-{g}-{p}")) for p, panel in enumerate(panels)]
        if single:
            groups[0][1].append((heading or panels[0].title, drawn[0]))
        else:
            groups.append((heading, list(zip((panel.title for panel in panels), drawn, strict=True))))
    return {"section": section, "groups": groups, "beside": single and len(groups[0][1]) <= 2}


def _title(studies: Sequence[Study], table: Sequence[Row]) -> str:
    data = " and ".join(sorted({row.data for row in table if row.data}))
    runs = studies[0].name if len(studies) == 1 else f"{len(studies)} runs"
    return f"{runs} on {data}" if data else runs


def _about(study: Study) -> dict[str, Any]:
    """Where a run comes from: seeds, versions, settings, commands."""
    description, summary = study.description, study.summary
    seeds: dict[str, Any] = {"model": description.seed}
    made = {"training": summary.training, "grafting": summary.grafting}
    settings = {name: figures.settings for name, figures in made.items() if figures and figures.settings}
    seeds |= {name: chosen.get("seed") for name, chosen in settings.items()}
    attacks = {figures.seed for figures in summary.evaluation.values()}
    proofs = {record.get("seed") for verification in study.verifications for record in verification.records}
    for name, used in (("attack", attacks), ("verification", proofs)):
        seeds[name] = ", ".join(sorted(map(str, used - {None}))) or None
    return {
        "name": study.name,
        "path": str(study.run.path),
        "parent": description.parent,
        "versions": description.versions,
        "seeds": {name: seed for name, seed in seeds.items() if seed is not None},
        "settings": settings,
        "commands": study.run.commands(),
    }
