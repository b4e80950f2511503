"""`lingraft runs`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json
from lingraft.errors import LingraftError
from lingraft.report.table import COLUMNS, NUMBERS
from lingraft.report.table import show as cell

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
    listed = lingraft.list_runs(folder)
    if as_json:
        print_json([content for run in listed for content in run.as_dicts()])
        return
    if not listed:
        raise LingraftError(f"{folder} holds no run folder. Make one with `lingraft train -o {folder / 'NAME'}`.")
    table = Table(title=f"Runs in {folder}", title_justify="left", box=SIMPLE_HEAD, padding=0, collapse_padding=True)
    table.add_column("Run", overflow="fold")
    for heading in SHOWN:
        table.add_column(heading, justify="right" if COLUMNS[heading][1] in NUMBERS else "left")
    for run in listed:
        if run.error is not None:
            table.add_row(escape(run.name), "[red]damaged[/]")
        for row in run.rows:
            table.add_row(escape(run.name), *(cell(row, heading) for heading in SHOWN))
    Console(highlight=False).print(table)
    next_step(f"lingraft show {listed[-1].path}")
