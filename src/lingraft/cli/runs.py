"""`lingraft runs`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json
from lingraft.errors import LingraftError

#: Columns of the report's summary table that fit a terminal.
SHOWN = ("Data", "ε", "Grafted %", "SA %", "RA %", "VA %", "UNR %", "Time s", "Images")


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder to look in, with all below it.")] = Path(
        "runs"
    ),
    as_json: Json = False,
) -> None:
    """List the run folders below a folder with their key figures: SA, RA, VA, unstable neurons, time."""
    if not folder.is_dir():
        raise LingraftError(f"there is no folder {folder}. Make runs with `lingraft train`, or name another folder.")
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lingraft.report.study import Study, explained
    from lingraft.report.table import COLUMNS, NUMBERS, rows, show
    from lingraft.runs import Run

    listed: list[dict[str, Any]] = []
    table = Table(title=f"Runs in {folder}", title_justify="left", box=SIMPLE_HEAD, padding=0, collapse_padding=True)
    table.add_column("Run", overflow="fold")
    for heading in SHOWN:
        table.add_column(heading, justify="right" if COLUMNS[heading][1] in NUMBERS else "left")
    for path in sorted(found.parent for found in folder.rglob("model.json")):
        name = path.relative_to(folder).as_posix()
        try:
            with explained():
                measured = rows([Study(Run(path), name)])
        except LingraftError as error:  # one damaged run does not hide the others
            listed.append({"run": name, "path": str(path), "error": str(error)})
            table.add_row(escape(name), "[red]damaged[/]")
            continue
        for row in measured:
            listed.append({"path": str(path), **row.as_dict()})
            table.add_row(escape(name), *(show(row, heading) for heading in SHOWN))
    if as_json:
        print_json(listed)
        return
    if not listed:
        raise LingraftError(f"{folder} holds no run folder. Make one with `lingraft train -o {folder / 'NAME'}`.")
    Console(highlight=False).print(table)
    next_step(f"lingraft show {listed[-1]['path']}")
