"""`lingraft zoo`."""

from rich.console import Console
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json


@app.command()
def zoo(as_json: Json = False) -> None:
    """List the networks that lingraft can build, with their size."""
    rows = lingraft.list_models()
    if as_json:
        print_json(rows)
        return
    table = Table("name", "network", "input", title="The zoo")
    table.columns[0].no_wrap = True  # names are there to be typed
    table.add_column("parameters", justify="right")
    table.add_column("neurons", justify="right")
    table.add_column("source")
    for row in rows:
        size = "×".join(map(str, row["input"]))
        table.add_row(row["name"], row["title"], size, f"{row['parameters']:,}", f"{row['neurons']:,}", row["source"])
    Console().print(table)
    next_step("lingraft train --data digits --model digits-cnn -o runs/digits")
