"""`lingraft doctor`."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json


@app.command()
def doctor(
    as_json: Json = False,
    operations: Annotated[
        bool, typer.Option("--operations", help="List the operations that a network may consist of instead.")
    ] = False,
) -> None:
    """Say what is here and what is missing: versions, processor, memory, GPU, data, other tools."""
    if operations:
        _list_operations(as_json)
        return
    here = lingraft.doctor()
    if as_json:
        print_json(here)
        return
    machine, data = here["machine"], here["data"]
    console = Console(highlight=False, soft_wrap=True)
    versions = (f"{name} {version or '[red]missing[/]'}" for name, version in here["versions"].items())
    console.print("[bold]versions[/]  " + ", ".join(versions))
    console.print(
        f"[bold]machine[/]   {machine['system']}; {machine['usable_cores']} of {machine['cores']} cores,"
        f" {machine['torch_threads']} threads in PyTorch; {machine['free_memory_gib']} GiB of memory and"
        f" {machine['free_disk_gib']} GiB of disk free; GPU: {', '.join(machine['gpus']) or 'none'}"
    )
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for name, state in data["states"].items():
        good = state in ("complete", "shorter")
        table.add_row(
            _mark(good), f"data: {name}", state if good else f"lingraft data fetch {name}, or set LINGRAFT_DATA"
        )
    for feature in here["features"]:
        table.add_row(_mark(feature["available"]), feature["name"], escape(feature["note"]))
    console.print(f"[bold]data in[/]   {data['folder']}")
    console.print(table)
    next_step("lingraft demo   (needs nothing of what is missing)")


def _list_operations(as_json: bool) -> None:
    known = lingraft.operations()
    if as_json:
        print_json(known)
        return
    columns = {"verified": "V", "grafted": "G", "certified": "T", "exported": "E", "certificate": "C"}
    table = Table(box=None, pad_edge=False)
    table.add_column("operation", no_wrap=True)
    table.add_column("torch", overflow="fold")
    table.add_column("ONNX", overflow="fold")
    for letter in columns.values():
        table.add_column(letter)
    for row in known:
        names = row["name"], " ".join(row["torch"]), " ".join(row["onnx"])
        table.add_row(*map(escape, names), *(_mark(row[column]) for column in columns))
    console = Console(highlight=False)
    console.print(table)
    for row in known:
        if row["note"]:
            console.print(f"{row['name']}: {row['note']}")
    console.print(
        "Networks with it can be Verified, Grafted, Trained with certified bounds, Exported; C: the checker of"
        " certificates reads what it is exported as."
    )
    next_step("lingraft verify RUN   (an operation that is not listed is an error that names it)")


def _mark(good: bool) -> str:
    return "[green]✓[/]" if good else "[yellow]–[/]"
