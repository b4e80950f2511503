"""Reproducing a table or figure of the paper: run the stages that are missing, then write what came out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.files import append_line, read_lines, remove_dead_parts, replacing, write_json
from lingraft.names import lookup
from lingraft.pool.ray.tasks import side_by_side
from lingraft.progress import console
from lingraft.report.figures import sections
from lingraft.report.panels import Panel, draw
from lingraft.report.study import studies
from lingraft.report.write import write_report
from lingraft.work.experiments.perform import perform
from lingraft.work.experiments.plan import Cell, Plan, make_plan, minutes, with_parents
from lingraft.work.experiments.recipe import COLUMNS, Recipe, recipes, scales
from lingraft.work.experiments.results import Result, collect, record
from lingraft.work.experiments.stage import Stage
from lingraft.work.experiments.sweep import sweep
from lingraft.work.experiments.tables import by_network, comma_separated, latex, markdown, show, show_paper

#: Called with a stage, its number from 1, and how many there are, before it is run.
Announce = Callable[[Stage, int, int], None]


@dataclass(frozen=True)
class Reproduced:
    """A recipe at a scale: the commands that were still to run, and what came out, tables first among the files."""

    plan: Plan
    commands: list[str]
    results: list[Result]
    files: list[Path]

    @property
    def title(self) -> str:
        """What it is, and where in the paper."""
        return f"{self.plan.recipe.title} (the paper: {self.plan.recipe.paper}); scale {self.plan.scale_name}"

    @property
    def tables(self) -> dict[str, list[list[str]]]:
        """Network → heading and rows that were run, our figures with the paper's in brackets."""
        columns = self.plan.recipe.columns
        if not columns:
            return {}
        return {
            network: [
                ["", *(COLUMNS[name][0] for name in columns)],
                *([row.name, *(f"{show(row, name)} ({show_paper(row, name)})" for name in columns)] for row in rows),
            ]
            for network, rows in by_network([result for result in self.results if result.runs]).items()
        }


def reproduce(
    name: str,
    *,
    scale: str = "laptop",
    out: str | Path | None = None,
    seeds: int = 1,
    network: Sequence[str] = (),
    row: Sequence[str] = (),
    dry_run: bool = False,
    report: Callable[[Reproduced], None] = lambda reproduced: None,
) -> list[Reproduced]:
    """Reproduce a table or figure of the paper, or "all": train, graft, measure, put the figures beside the paper's.

    `scale` is smoke, laptop or paper; `seeds` says how often each row is repeated; only networks and rows are made
    whose name is, or else contains, one of the texts `network` and `row`. Runs are shared by all recipes of a scale and
    kept in `out` (default: reproduction/SCALE); another call goes on after a stop. The table always has all networks
    and rows: those of earlier calls with their figures, others with the command that makes them. `report` is called
    after each recipe. With `dry_run` nothing is done: the `commands` say what would be.
    """
    size = lookup("scale", scale, scales())
    chosen = recipes() if name == "all" else {name: lookup("recipe", name, recipes())}
    plans = [make_plan(each, recipe, scale, size, seeds, network, row) for each, recipe in chosen.items()]
    reproduction = Reproduction(Path(out or Path("reproduction") / scale))
    done = []
    for plan in plans:
        commands = [stage.line(reproduction.runs) for stage in reproduction.missing(plan)]
        if dry_run:
            done.append(Reproduced(plan, commands, [], []))
            continue
        reproduction.run(plan.stages, _announcer(plan))
        table = reproduction.table(plan)
        results = collect(table, reproduction.runs, reproduction.hours_left(table))
        done.append(Reproduced(plan, commands, results, reproduction.write(table, results)))
        report(done[-1])
    return done


def list_recipes() -> list[dict[str, Any]]:
    """All recipes: name, title, where in the paper, networks, and about how many minutes each takes at each scale."""
    return [
        {
            "name": name,
            "title": recipe.title,
            "paper": recipe.paper,
            "networks": [network.name for network in recipe.networks],
            "minutes": {
                scale: round(make_plan(name, recipe, scale, size).minutes, 1) for scale, size in scales().items()
            },
        }
        for name, recipe in recipes().items()
    ]


def _announcer(plan: Plan) -> Announce:
    def announce(stage: Stage, number: int, count: int) -> None:
        takes = minutes(stage, plan.scale)
        about = f"about {takes:.0f} min" if takes >= 1 else "under a minute"
        title = f"[bold]{plan.name}[/] {number}/{count}: {stage.command} {stage.title}".rstrip()
        console.print(f"{title} ({about})", highlight=False, soft_wrap=True)

    return announce


class Reproduction:
    """A folder for all recipes of one scale: runs that they share, a log of finished stages, and a folder a recipe."""

    def __init__(self, folder: Path, perform: Callable[[Stage, Path], None] = perform):
        self.folder, self.perform = folder, perform
        self.runs = folder / "runs"
        self.log = folder / "stages.jsonl"

    def finished(self) -> dict[tuple[str, str], dict[str, Any]]:
        """(command, key) → what the log says of a finished stage whose run is still there."""
        return {
            (str(entry.get("command")), str(entry.get("key"))): entry
            for entry in read_lines(self.log)
            if (self.runs / str(entry.get("run")) / "model.json").exists()
        }

    def missing(self, plan: Plan) -> list[Stage]:
        """The stages that a plan still needs."""
        return self._left(plan.stages)

    def _left(self, stages: Sequence[Stage]) -> list[Stage]:
        finished = self.finished()
        return [stage for stage in stages if (stage.command, stage.key) not in finished]

    def run(self, wanted: Sequence[Stage], announce: Announce = lambda stage, number, count: None) -> None:
        """Run the stages that are missing, in order; one that was stopped goes on where it was."""
        stages = self._left(wanted)
        for number, stage in enumerate(stages, 1):
            announce(stage, number, len(stages))
            self.do(stage)

    def do(self, stage: Stage) -> None:
        """Run one stage, and say in the log that it is finished."""
        line = stage.line(self.runs)
        begun = time.monotonic()
        try:
            self.perform(stage, self.runs)
        except LingraftError as error:
            raise LingraftError(f"{error} (in `{line}`; the same reproduction goes on from here)") from error
        append_line(
            self.log,
            {
                "command": stage.command,
                "key": stage.key,
                "run": stage.folder(self.runs).name,
                "line": line,
                "seconds": round(time.monotonic() - begun, 1),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        )

    def run_on_ray(self, wanted: Sequence[Stage], address: str, gpu: bool) -> dict[str, LingraftError]:
        """Run stages that are missing side by side on a Ray cluster, each after those it starts from.

        Key of a stage → the error that ended it; what starts from it is not run.
        """
        failed: dict[str, LingraftError] = {}
        while True:
            left = {stage.key: stage for stage in self._left(wanted) if stage.key not in failed}
            now = [stage for stage in left.values() if stage.parent is None or stage.parent.key not in left]
            now = [stage for stage in now if stage.parent is None or stage.parent.key not in failed]
            if not now:
                return failed
            title = f"training {len(now)} settings on Ray"
            errors = side_by_side(address, title, self.do, [(stage,) for stage in now], gpu)
            failed |= {stage.key: error for stage, error in zip(now, errors, strict=True) if error is not None}

    def hours_left(self, plan: Plan) -> Callable[[Sequence[Cell]], float]:
        """About how many hours some cells still take on two cores; 0 if they are filled."""
        missing = {(stage.command, stage.key) for stage in self.missing(plan)}

        def hours(cells: Sequence[Cell]) -> float:
            stages = {(stage.command, stage.key): stage for cell in cells for stage in cell.stages}
            return sum(minutes(stage, plan.scale) for key, stage in stages.items() if key in missing) / 60

        return hours

    def table(self, plan: Plan) -> Plan:
        """The plan of the whole table that a plan is a part of: all its networks and rows, all seeds that one has."""
        if plan.recipe.corners:  # all its runs are compared with each other
            return plan
        finished, seeds = {key for _, key in self.finished()}, plan.seeds
        while True:
            whole = make_plan(plan.name, plan.recipe, plan.scale_name, plan.scale, seeds + 1)
            if not any(cell.seed == seeds and cell.run.key in finished for cell in whole.cells):
                return replace(whole, seeds=seeds, cells=tuple(cell for cell in whole.cells if cell.seed < seeds))
            seeds += 1

    def write(self, plan: Plan, results: Sequence[Result]) -> list[Path]:
        """Tables, figures, the page of all runs and the whole record; gives the files, tables first."""
        folder = self.folder / plan.name
        remove_dead_parts(folder)
        finished = self.finished()
        log = [finished[key] for stage in plan.stages if (key := (stage.command, stage.key)) in finished]
        texts = {"table.md": markdown(plan, results)}
        if plan.recipe.columns:
            texts |= {"table.csv": comma_separated(plan, results), "table.tex": latex(plan, results)}
        for name, text in texts.items():
            with replacing(folder / name) as part:
                part.write_text(text, encoding="utf-8")
        write_json(folder / "result.json", record(plan, results, log))
        hours = self.hours_left(plan)
        cells = [cell for cell in plan.cells if not hours([cell])]
        runs = list(dict.fromkeys(stage.folder(self.runs) for cell in cells for stage in with_parents(cell.run)))
        run = [result for result in results if result.runs]
        pictures = [
            self._draw(panels, folder / f"{name}.svg") for name, panels in _pictures(plan.recipe, run, runs).items()
        ]
        return [*(folder / name for name in texts), *pictures, write_report(runs, folder / "report.html")]

    def _draw(self, panels: Sequence[Panel], path: Path) -> Path:
        with replacing(path) as part:
            draw(panels).savefig(part, format="svg")
        return path


def _pictures(recipe: Recipe, results: Sequence[Result], runs: Sequence[Path]) -> dict[str, list[Panel]]:
    """Name of the file → its panels: what the recipe asks for of the report of its runs, and sweeps."""
    if not recipe.figures:
        return {}
    found = {}
    if "sweep" in recipe.figures:
        options = {row.name: row.vary.option for row in recipe.rows if row.vary}
        found["sweep"] = sweep(results, options, recipe.columns)
    found |= {part.figure.key: part.groups for part in sections(studies(runs)) if part.figure.key in recipe.figures}
    return {
        key if len(groups) == 1 else f"{key}-{number}": panels
        for key, groups in found.items()
        for number, panels in enumerate(groups.values(), 1)
    }
