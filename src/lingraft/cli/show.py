"""`lingraft show`."""

from typing import TYPE_CHECKING, Any

from lingraft.cli import app
from lingraft.cli.options import Json, RunFolder, next_step, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from lingraft.report.study import Study
    from lingraft.runs import ModelDescription


@app.command()
def show(folder: RunFolder, as_json: Json = False) -> None:
    """Print what a run folder holds: the model, how it was made, everything measured of it. Measures nothing."""
    from lingraft.report.study import Study, explained
    from lingraft.report.table import rows
    from lingraft.runs import Run

    run = Run(folder)
    study = Study(run, run.path.name)
    files = {path.name: path.stat().st_size for path in sorted(run.path.iterdir()) if path.is_file()}
    with explained():
        if not as_json:
            _print(study, files)
            return
        print_json(
            {
                "run": str(run.path),
                "model": study.description.model_dump(mode="json"),
                "figures": [row.as_dict() for row in rows([study])],
                "summary": study.summary.as_dict(),
                "commands": run.commands(),
                "files": files,
            }
        )


def _print(study: "Study", files: dict[str, int]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    for name, text in _facts(study.description).items():
        console.print(f"[bold]{name:<10}[/]{escape(text)}")
    if study.summary.training and (best := study.summary.training.best):
        console.print(f"[bold]{'trained':<10}[/]kept epoch {best.epoch}: SA {best.sa:.2%}, RA {best.ra:.2%}")
    if study.description.grafted:
        console.print(_sites(study))
    console.print(_figures(study))
    for command in study.run.commands():
        console.print(f"[dim]{command['started']}[/]  {escape(command['command'])}")
    console.print("[bold]files[/]     " + ", ".join(f"{name} ({size:,} bytes)" for name, size in files.items()))
    next_step(f"lingraft report {study.run.path} -o report.html   (figures, and every image with its verdict)")


def _facts(model: "ModelDescription") -> dict[str, str]:
    from lingraft.report.table import show_eps

    facts: dict[str, Any] = {
        "model": model.architecture or "a module of your own",
        "input": "×".join(map(str, model.input_shape)) + f", {model.classes} classes",
        "data": model.data,
        "ε": None if model.eps is None else show_eps(model.eps),
        "seed": model.seed,
        "parent": model.parent,
        "made with": ", ".join(f"{name} {version}" for name, version in model.versions.items()) or None,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _sites(study: "Study") -> "Table":
    import math

    from rich.table import Table

    table = Table("site", "shape", title="Grafted sites", title_justify="left")
    for heading in ("neurons", "grafted", "of these pruned"):
        table.add_column(heading, justify="right")
    for site in study.description.grafted or []:
        neurons = math.prod(site.shape)
        shape = "×".join(map(str, site.shape))
        table.add_row(site.name, shape, f"{neurons:,}", f"{site.grafted / neurons:.1%}", f"{site.pruned:,}")
    return table


def _figures(study: "Study") -> "Table":
    """One figure a line, one column for each ε at which the run was verified."""
    from rich.table import Table

    from lingraft.report.table import rows
    from lingraft.report.table import show as cell

    measured = rows([study])
    table = Table("", title="Figures", title_justify="left")
    for row in measured:
        table.add_column(f"ε = {cell(row, 'ε')}", justify="right")
    for heading in ("SA %", "RA %", "VA %", "UNR %", "Time s", "Images", "Limit s", "Attack", "Grafted %"):
        table.add_row(heading, *(cell(row, heading) for row in measured))
    for verdict in ("verified", "falsified", "unknown", "misclassified"):
        if any(row.verdicts for row in measured):
            table.add_row(verdict, *(str(row.verdicts.get(verdict, "–")) for row in measured))
    return table
