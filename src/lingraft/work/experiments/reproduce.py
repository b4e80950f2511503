"""Reproducing a table or figure of the paper: run the stages that are missing, then write what came out."""

import shlex
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.files import append_line, read_lines, remove_dead_parts, replacing, write_json
from lingraft.report.figures import sections
from lingraft.report.panels import Panel, draw
from lingraft.report.study import studies
from lingraft.report.write import write_report
from lingraft.work.experiments.plan import Plan, with_parents
from lingraft.work.experiments.recipe import Recipe
from lingraft.work.experiments.results import Result, record
from lingraft.work.experiments.stage import Stage
from lingraft.work.experiments.sweep import sweep
from lingraft.work.experiments.tables import comma_separated, latex, markdown

#: Called with a stage, its number from 1, and how many there are, before it is run.
Announce = Callable[[Stage, int, int], None]


class Reproduction:
    """A folder for all recipes of one scale: runs that they share, a log of finished stages, and a folder a recipe."""

    def __init__(self, folder: Path, run_command: Callable[[list[str]], None]):
        self.folder, self.run_command = folder, run_command
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
        finished = self.finished()
        return [stage for stage in plan.stages if (stage.command, stage.key) not in finished]

    def run(self, plan: Plan, announce: Announce) -> None:
        """Run the missing stages in order; a stage that was stopped goes on where it was."""
        stages = self.missing(plan)
        for number, stage in enumerate(stages, 1):
            announce(stage, number, len(stages))
            arguments = stage.arguments(self.runs)
            begun = time.monotonic()
            try:
                self.run_command(arguments)
            except LingraftError as error:
                line = shlex.join(["lingraft", *arguments])
                raise LingraftError(f"{error} (in `{line}`; the same reproduction goes on from here)") from error
            append_line(
                self.log,
                {
                    "command": stage.command,
                    "key": stage.key,
                    "run": stage.folder(self.runs).name,
                    "line": shlex.join(["lingraft", *arguments]),
                    "seconds": round(time.monotonic() - begun, 1),
                    "finished": datetime.now(UTC).isoformat(timespec="seconds"),
                },
            )

    def write(self, plan: Plan, results: Sequence[Result]) -> list[Path]:
        """Tables, figures, the page of all runs and the whole record; gives the files, tables first."""
        folder = self.folder / plan.name
        remove_dead_parts(folder)
        finished = self.finished()
        log = [finished[stage.command, stage.key] for stage in plan.stages]
        texts = {"table.md": markdown(plan, results)}
        if plan.recipe.columns:
            texts |= {"table.csv": comma_separated(plan, results), "table.tex": latex(plan, results)}
        for name, text in texts.items():
            with replacing(folder / name) as part:
                part.write_text(text, encoding="utf-8")
        write_json(folder / "result.json", record(plan, results, log))
        runs = list(dict.fromkeys(stage.folder(self.runs) for cell in plan.cells for stage in with_parents(cell.run)))
        pictures = [
            self._draw(panels, folder / f"{name}.svg") for name, panels in _pictures(plan.recipe, results, runs).items()
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
