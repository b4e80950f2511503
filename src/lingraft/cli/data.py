"""`lingraft data` and `lingraft data fetch`."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.completion import offer
from lingraft.cli.options import Json, next_step, print_json
from lingraft.errors import LingraftError

data_app = typer.Typer(invoke_without_command=True)
app.add_typer(data_app, name="data")

_COLOURS = {"complete": "green", "shorter": "yellow", "missing": "red", "damaged": "bold red"}


@data_app.callback()
def data(context: typer.Context, as_json: Json = False) -> None:
    """List the data sets and what is there of them, or fetch one.

    Files are looked for in the folder LINGRAFT_DATA, by default lingraft's folder in the platform's cache.
    """
    if context.invoked_subcommand:
        if as_json:
            raise typer.BadParameter(f"write it behind the command: lingraft data {context.invoked_subcommand} --json")
        return
    holdings, folder = lingraft.data.inventory(), lingraft.data.data_root()
    if as_json:
        print_json({"folder": str(folder), "datasets": [asdict(holding) for holding in holdings]})
        return
    table = Table("name", "data set", "state", title=f"Data sets in {folder}")
    for split in ("train", "validation", "test"):
        table.add_column(split, justify="right")
    for holding in holdings:
        counts = (holding.train, holding.validation, holding.test)
        table.add_row(
            holding.name,
            lingraft.data.DATASETS[holding.name].title,
            f"[{_COLOURS[holding.state]}]{holding.state}[/]",
            *("–" if count is None else f"{count:,}" for count in counts),
        )
    console = Console()
    console.print(table)
    for holding in holdings:
        for remark in holding.remarks:
            console.print(remark, markup=False, highlight=False, soft_wrap=True)
    wanting = [holding.name for holding in holdings if holding.state in ("missing", "damaged")]
    if wanting:
        next_step(f"lingraft data fetch {wanting[0]}")
    else:
        next_step("lingraft train --data digits --model digits-cnn -o runs/digits")


@data_app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="mnist, svhn or cifar10.", autocompletion=offer("fetched"))
    ],
    address: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="A folder on the web to use instead of the official addresses."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Download a data set, check it, and put it where lingraft finds it. Goes on where an earlier try stopped."""
    new = lingraft.data.fetch(name, address=address)
    (holding,) = lingraft.data.inventory([name])
    if as_json:
        folder = str(lingraft.data.data_root())
        print_json({"folder": folder, "new": [str(path) for path in new], **asdict(holding)})
    else:
        for path in new:
            typer.echo(f"{path}: downloaded, checksum right")
        if not new:
            typer.echo(f"{name}: nothing to download")
        counts = f"{holding.train} train, {holding.validation} validation, {holding.test} test images"
        typer.echo(f"{name}: {holding.state}, {counts}")
    if holding.remarks:
        raise LingraftError(" ".join(holding.remarks))
    next_step(f"lingraft train --data {name}")
