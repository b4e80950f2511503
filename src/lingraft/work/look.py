"""Looking at what is there: the runs below a folder, one run, the networks of the zoo. Nothing is measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.model import zoo
from lingraft.report.study import Study, explained
from lingraft.report.table import Row
from lingraft.runs import Run


@dataclass(frozen=True)
class ListedRun:
    """A run with its rows of the summary table, or why it has none."""

    #: its path below the folder that was looked through
    name: str
    path: Path
    rows: list[Row]
    #: what is wrong with a damaged one
    error: str | None = None

    def as_dicts(self) -> list[dict[str, Any]]:
        """JSON-able, one for each row; of a damaged run one with the error."""
        if self.error is not None:
            return [{"run": self.name, "path": str(self.path), "error": self.error}]
        return [{"path": str(self.path), **row.as_dict()} for row in self.rows]


def list_runs(folder: str | Path = "runs") -> list[ListedRun]:
    """All runs below a folder; a damaged one does not hide the others."""
    folder = Path(folder)
    if not folder.is_dir():
        raise LingraftError(f"there is no folder {folder}. Make runs with `lingraft train`, or name another folder.")
    listed = []
    for path in sorted(model.parent for model in folder.rglob("model.json")):
        name = path.relative_to(folder).as_posix()
        try:
            with explained():
                listed.append(ListedRun(name, path, Study(Run(path), name).rows))
        except LingraftError as error:
            listed.append(ListedRun(name, path, [], str(error)))
    return listed


def show_run(run: str | Path | Run) -> dict[str, Any]:
    """What a run folder holds: the model, everything measured of it, the commands that made it, files. JSON-able."""
    run = run if isinstance(run, Run) else Run(run)
    study = Study(run, run.path.name)
    with explained():
        return {
            "run": str(run.path),
            "model": study.description.model_dump(mode="json"),
            "figures": [row.as_dict() for row in study.rows],
            "summary": study.summary.as_dict(),
            "commands": run.commands(),
            "files": {path.name: path.stat().st_size for path in sorted(run.path.iterdir()) if path.is_file()},
        }


def list_models() -> list[dict[str, Any]]:
    """The networks of the zoo with their sizes. JSON-able."""
    return [
        {
            "name": name,
            "title": spec.title,
            "input": list(spec.input_shape),
            "parameters": zoo.count_parameters(zoo.build(name)),
            "neurons": zoo.count_neurons(name),
            "source": spec.source,
        }
        for name, spec in zoo.MODELS.items()
    ]
