"""`lingraft zoo`."""

from typing import Any

from lingraft.cli import app
from lingraft.cli.options import Json, next_step, print_json


@app.command()
def zoo(as_json: Json = False) -> None:
    """List the networks that lingraft can build, with their size."""
    from rich.console import Console
    from rich.table import Table

    from lingraft.model.zoo import MODELS, build, count_neurons, count_parameters

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "title": spec.title,
            "input": list(spec.input_shape),
            "parameters": count_parameters(build(name)),
            "neurons": count_neurons(name),
            "source": spec.source,
        }
        for name, spec in MODELS.items()
    ]
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
