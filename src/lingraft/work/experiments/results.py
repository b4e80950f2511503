"""The figures of a reproduction, with the paper's beside them."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lingraft.files import read_json, read_lines
from lingraft.report.study import Verification, studies
from lingraft.runs import Run, versions
from lingraft.runs.summary import VERDICTS
from lingraft.work.experiments.certainty import Comparison, compare, mean_unstable, shared_images, wilson
from lingraft.work.experiments.plan import Cell, Plan
from lingraft.work.experiments.recipe import Network

#: The paper prints shares in percent; so do we beside it.
_SHARES = ("unr", "va", "sa", "ra")


@dataclass
class Result:
    """One row of one network: measured for each seed, in percent, seconds or hours, None for what was not."""

    network: Network
    name: str
    row: str
    value: float | None
    #: column → one figure a seed
    measured: dict[str, list[float | None]]
    #: column → the paper's figure
    paper: dict[str, float | None]
    #: the run folder of each seed
    runs: list[str]
    #: images verified, seconds for each, and the attack of RA
    settings: dict[str, Any]
    #: the verdicts of each seed that was verified
    verifications: list[Verification] = field(default_factory=list)
    #: with the row that the recipe compares with, on the same images; None for that row itself
    comparison: Comparison | None = None
    #: of a row that was not run: about how many hours that takes on two cores, with all values of a varied option
    hours: float | None = None

    @property
    def verdicts(self) -> dict[str, int]:
        """How many images of all seeds ended how."""
        return {name: sum(getattr(each.summary, name) for each in self.verifications) for name in VERDICTS}

    @property
    def va_interval(self) -> tuple[float, float] | None:
        """In percent: where VA lies with 95 % confidence, as far as it depends on which images were taken (Wilson)."""
        images = sum(self.verdicts.values())
        return wilson(self.verdicts["verified"], images) if images else None

    def mean(self, column: str) -> float | None:
        """Over the seeds; None if one was not measured."""
        values = [value for value in self.measured[column] if value is not None]
        return statistics.fmean(values) if 0 < len(values) == len(self.runs) else None

    def deviation(self, column: str) -> float | None:
        """Standard deviation over the seeds (of a sample); None for one seed."""
        values = [value for value in self.measured[column] if value is not None]
        return statistics.stdev(values) if 1 < len(values) == len(self.runs) else None

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "network": self.network.name,
            "paper_network": self.network.in_paper,
            "row": self.name,
            **({} if self.value is None else {"value": self.value}),
            "measured": {
                name: {"seeds": values, "mean": self.mean(name), "deviation": self.deviation(name)}
                for name, values in self.measured.items()
            },
            "paper": self.paper,
            "runs": self.runs,
            **({} if self.hours is None else {"not_run_hours": round(self.hours, 2)}),
            **self.settings,
            **({"verdicts": self.verdicts, "va_interval": self.va_interval} if self.verifications else {}),
            **({} if self.comparison is None else {"compared": self.comparison.as_dict()}),
        }


def collect(plan: Plan, root: Path, hours: Callable[[Sequence[Cell]], float]) -> list[Result]:
    """What the runs of a plan say, row by row; nothing is measured.

    Cells that still take `hours` are left out; a row that has no other stands there without figures.
    """
    nothing: dict[str, list[float | None]] = {name: [] for name in plan.recipe.columns}
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in plan.cells:
        grouped.setdefault((cell.network.in_paper, cell.name), []).append(cell)
    results = []
    for cells in grouped.values():
        done = [cell for cell in cells if not hours([cell])]
        results.append(_result(plan, done, root) if done else _row_of(plan, cells, [], dict(nothing), {}))
        if not done:
            first = cells[0]
            alike = [cell for cell in plan.cells if (cell.network, cell.row) == (first.network, first.row)]
            results[-1].hours = hours(alike)
    for network in {result.network.in_paper: None for result in results}:
        _compare([result for result in results if result.network.in_paper == network], plan.recipe.compare_with)
    return results


def _compare(rows: Sequence[Result], compare_with: str | None) -> None:
    """UNR of all rows over the same images, and each row against the one that the recipe names, image by image."""
    verified = [each for row in rows for each in row.verifications]
    if "unr" in rows[0].paper and verified:
        images = shared_images(verified)
        for row in rows:
            row.measured["unr"] = [_percent(mean_unstable(each, images)) for each in row.verifications]
    other = next((row for row in rows if row.row == compare_with), None)
    for row in rows:
        if other is not None and row is not other and row.verifications and other.verifications:
            row.comparison = compare(other.name, row.verifications, other.verifications)


def _result(plan: Plan, cells: Sequence[Cell], root: Path) -> Result:
    folders = [cell.run.folder(root) for cell in cells]
    corners = plan.corners.get(cells[0].network.in_paper)
    if corners is not None:
        return _corner_result(plan, cells, folders, read_json(corners.folder(root) / "corners" / "corners.json"))
    # each by itself: two rows may share a run, which a report would show once
    seen = [studies([folder])[0] for folder in folders]
    found = [study.rows[0].as_dict() for study in seen]
    columns = plan.recipe.columns
    measured = {
        name: [_figure(name, row, folder) for row, folder in zip(found, folders, strict=True)] for name in columns
    }
    kept = ("images", "limit", "attack", "images_ra")
    settings = {name: found[0][name] for name in kept if found[0][name] is not None}
    result = _row_of(plan, cells, folders, measured, settings)
    result.verifications = [study.verifications[0] for study in seen if study.verifications]
    return result


def _corner_result(plan: Plan, cells: Sequence[Cell], folders: Sequence[Path], study: dict[str, Any]) -> Result:
    """A row of the table on corner cases, from what `lingraft corners` wrote."""
    side = study["baselines" if cells[0].row.graft is None else "grafted"]
    figures = {
        f"{what}{suffix}": [_percent(run[where][what]) for run in side]
        for where, suffix in (("corners", "_corners"), ("regular", ""))
        for what in ("va", "sa")
    }
    settings = {"corner_cases": len(study["corner_cases"]), "images": plan.scale.verify["images"]}
    return _row_of(plan, cells, folders, {name: figures[name] for name in plan.recipe.columns}, settings)


def _row_of(
    plan: Plan,
    cells: Sequence[Cell],
    folders: Sequence[Path],
    measured: dict[str, list[float | None]],
    settings: dict[str, Any],
) -> Result:
    cell, columns = cells[0], plan.recipe.columns
    figures = cell.row.paper.get(cell.network.in_paper, [None] * len(columns))
    paper = dict(zip(columns, figures, strict=True))
    runs = [folder.name for folder in folders]
    return Result(cell.network, cell.name, cell.row.name, cell.value, measured, paper, runs, settings)


def _figure(column: str, row: dict[str, Any], folder: Path) -> float | None:
    if column == "training":
        return training_hours(Run(folder))
    value = row[column]
    if column in _SHARES:
        return _percent(value)
    return None if value is None else round(value, 4)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)


def training_hours(run: Run) -> float:
    """Hours spent in the epochs of a run and of the run it was grafted from, which may have been moved with it."""
    seconds = sum(float(epoch["seconds"]) for epoch in read_lines(run.history_path))
    parent = run.describe().parent
    if parent is None:
        return round(seconds / 3600, 4)
    beside = run.path.parent / Path(parent).name
    return round(seconds / 3600, 4) + training_hours(Run(beside if beside.exists() else parent))


def record(plan: Plan, results: Sequence[Result], stages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything about a reproduction that another person needs to check or repeat it; JSON-able."""
    return {
        "recipe": plan.name,
        "title": plan.recipe.title,
        "paper": plan.recipe.paper,
        "scale": plan.scale_name,
        "about_scale": plan.scale.about,
        "seeds": plan.seeds,
        "versions": versions(),
        "results": [result.as_dict() for result in results],
        "stages": list(stages),
    }
