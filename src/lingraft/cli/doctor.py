"""`lingraft doctor`."""

from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is here and what is missing: versions, processor, memory, GPU, data, other tools."""
    from dataclasses import asdict

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lingraft.work.environment import data_found, features, machine, package_versions

    versions, here, abilities, data = package_versions(), machine(), features(), data_found()
    if as_json:
        print_json(
            {"versions": versions, "machine": here, "features": [asdict(each) for each in abilities], "data": data}
        )
        return
    console = Console(highlight=False, soft_wrap=True)
    shown = (f"{name} {version or '[red]missing[/]'}" for name, version in versions.items())
    console.print("[bold]versions[/]  " + ", ".join(shown))
    console.print(
        f"[bold]machine[/]   {here['system']}; {here['usable_cores']} of {here['cores']} cores,"
        f" {here['torch_threads']} threads in PyTorch; {here['free_memory_gib']} GiB of memory and"
        f" {here['free_disk_gib']} GiB of disk free; GPU: {', '.join(here['gpus']) or 'none'}"
    )
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for name, state in data["states"].items():
        good = state in ("complete", "shorter")
        fetch = "" if good else f"lingraft data fetch {name}, or set LINGRAFT_DATA"
        table.add_row(_mark(good), f"data: {name}", fetch or state)
    for feature in abilities:
        table.add_row(_mark(feature.available), feature.name, escape(feature.note))
    console.print(f"[bold]data in[/]   {data['folder']}")
    console.print(table)
    next_step("lingraft demo   (needs nothing of what is missing)")


def _mark(good: bool) -> str:
    return "[green]✓[/]" if good else "[yellow]–[/]"
