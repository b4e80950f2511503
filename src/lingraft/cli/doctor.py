"""`lingraft doctor`."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is here and what is missing: versions, processor, memory, GPU, data, other tools."""
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


def _mark(good: bool) -> str:
    return "[green]✓[/]" if good else "[yellow]–[/]"
