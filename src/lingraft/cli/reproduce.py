"""`lingraft reproduce`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json
from lingraft.errors import LingraftError
from lingraft.printable import duration

if TYPE_CHECKING:
    from lingraft.work.experiments.reproduce import Reproduced


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A recipe of --list, or all.")] = None,
    scale: Annotated[
        str, typer.Option(help="smoke: digits, minutes; laptop: hours on two cores; paper: the published schedule.")
    ] = "laptop",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to write. (default: reproduction/SCALE)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How often to repeat each row; gives mean ± deviation.")] = 1,
    network: Annotated[
        list[str] | None, typer.Option(help="Only networks whose name is or contains this; may be given again.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="Only rows whose name is or contains this; may be given again.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the recipes, and how long each takes.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands that are still to run.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of the paper: train, graft, measure, and put the figures beside the paper's.

    Runs are shared by all recipes of a scale and kept; the same command goes on after a stop.
    """
    if listing:
        return _list(lingraft.list_recipes(), as_json)
    if name is None:
        raise LingraftError("name a recipe, or all; `lingraft reproduce --list` shows them.")
    done = lingraft.reproduce(
        name,
        scale=scale,
        out=out,
        seeds=seeds,
        network=network or (),
        row=row or (),
        dry_run=dry_run,
        report=(lambda reproduced: None) if as_json else _print,
    )
    if dry_run:
        commands = list(dict.fromkeys(line for each in done for line in each.commands))
        return print_json(commands) if as_json else typer.echo("\n".join(commands), nl=bool(commands))
    if as_json:
        print_json({each.plan.name: [str(path) for path in each.files] for each in done})
    next_step(f"open {done[-1].files[-1]} in a browser")
    return None


def _print(reproduced: "Reproduced") -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"\n[bold]{reproduced.title}[/]")
    for network, (heading, *rows) in reproduced.tables.items():
        table = Table(heading[0], title=f"{network}; in brackets the paper's", title_justify="left")
        for column in heading[1:]:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(f"written: [cyan]{'  '.join(map(str, reproduced.files))}[/]")


def _list(recipes: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(recipes)
        return
    table = Table(
        "recipe", "what", "in the paper", title="About how long each takes alone, on two cores", title_justify="left"
    )
    for scale in recipes[0]["minutes"]:
        table.add_column(scale, justify="right")
    for each in recipes:
        table.add_row(each["name"], each["title"], each["paper"], *(duration(60 * m) for m in each["minutes"].values()))
    Console().print(table)
    next_step("lingraft reproduce main --scale smoke   (runs are shared: together they take less)")
