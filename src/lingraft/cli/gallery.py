"""`lingraft gallery`."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json
from lingraft.report.table import show_eps


@app.command()
def gallery(as_json: Json = False) -> None:
    """List trained networks with what is proven of them; every command that takes a run takes their names."""
    rows = lingraft.gallery()
    if as_json:
        print_json(rows)
        return
    table = Table("name", title="The gallery", title_justify="left", box=SIMPLE_HEAD, padding=0, collapse_padding=True)
    table.columns[0].no_wrap = True  # names are there to be typed
    for heading in ("SA", "RA", "UNR", "VA", "of images", "within", "size"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for row in rows:
        about = f"{row['network']} on {row['data']}, ε = {show_eps(row['eps'])}: " if row["here"] else ""
        console.print(f"[bold]{row['name']}[/]: {about}{row['title']}")
    next_step(f"lingraft verify {rows[0]['name']} --images 10 --timeout 10")


def _cells(row: dict[str, Any]) -> list[str]:
    size = f"{row['bytes'] / 1e6:.1f} MB"
    if not row["here"]:
        return [row["name"], *["–"] * 6, f"{size}, to be fetched"]
    shares = [f"{row[name]:.1%}" for name in ("sa", "ra", "unr", "va")]
    return [row["name"], *shares, str(row["images_va"]), f"{row['limit']:g} s", size]
