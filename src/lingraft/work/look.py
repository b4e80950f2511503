"""Looking at what is there: the runs below a folder, one run, the networks of the zoo. Nothing is measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.data import spec_of
from lingraft.errors import LingraftError
from lingraft.model import zoo
from lingraft.model.sites import sites
from lingraft.report.study import Study, explained
from lingraft.report.table import Row
from lingraft.runs import Run
from lingraft.work.given import describe_own, named, network_of, run_of


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
    run = run_of(run)
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


def show_network(network: str | Path, data: str | Path | None = None) -> dict[str, Any]:
    """What an ONNX file or code, "net.py:make_net", gives: its input, classes, parameters and sites. JSON-able.

    Code does not say what it takes: `data` does, a data set or a file that fits.
    """
    model, name = network_of(network, "cpu"), named(data)
    shape = getattr(model, "input_shape", None) if name is None else spec_of(name).input_shape
    if shape is None:
        raise LingraftError(f"{network} does not say what it takes. Give --data, a data set or FILE.npz that fits.")
    return {
        "network": str(network),
        "input": list(shape),
        "classes": describe_own(model, tuple(shape)).classes,
        "parameters": zoo.count_parameters(model),
        "sites": [
            {"name": site.name, "activation": site.kind, "shape": list(site.shape)} for site in sites(model, shape)
        ],
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
