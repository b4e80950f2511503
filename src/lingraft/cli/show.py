"""`lingraft show`."""

import math
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import lingraft
from lingraft.cli import app
from lingraft.cli.options import Given, Json, OwnModel, RunData, RunFolder, given_network, next_step, print_json
from lingraft.report.table import Row, show_eps
from lingraft.report.table import show as cell


@app.command()
def show(
    folder: RunFolder = None,
    model: OwnModel = None,
    data: RunData = None,
    as_json: Json = False,
) -> None:
    """Print what a run folder holds: the model, how it was made, everything measured of it. Measures nothing.

    Of a network that is in no run: what it takes and gives, and what could be grafted; of code with the --data for it.
    """
    given = given_network(folder, model)
    if given.run is None:
        _show_network(given, data, as_json)
        return
    held = lingraft.show_run(given.run)
    if as_json:
        print_json(held)
        return
    console = Console(highlight=False, soft_wrap=True)
    for name, text in _facts(held["model"]).items():
        console.print(f"[bold]{name:<10}[/]{escape(text)}")
    if best := held["summary"].get("training", {}).get("best"):
        console.print(f"[bold]{'trained':<10}[/]kept epoch {best['epoch']}: SA {best['sa']:.2%}, RA {best['ra']:.2%}")
    if held["model"]["grafted"]:
        console.print(_sites(held["model"]["grafted"]))
    console.print(_figures([Row(**figures) for figures in held["figures"]]))
    for command in held["commands"]:
        console.print(f"[dim]{command['started']}[/]  {escape(command['command'])}")
    console.print("[bold]files[/]     " + ", ".join(f"{name} ({size:,} bytes)" for name, size in held["files"].items()))
    next_step(f"lingraft report {held['run']} -o report.html   (figures, and every image with its verdict)")


def _show_network(given: Given, data: str | None, as_json: bool) -> None:
    found = lingraft.show_network(given.network, data)
    if as_json:
        print_json(found)
        return
    shape = "×".join(map(str, found["input"]))
    title = f"{given.name}: {shape}, {found['classes']} classes, {found['parameters']:,} parameters"
    table = Table("site", "activation", "shape", title=title, title_justify="left")
    table.add_column("neurons", justify="right")
    for site in found["sites"]:
        neurons = math.prod(site["shape"])
        table.add_row(site["name"], site["activation"], "×".join(map(str, site["shape"])), f"{neurons:,}")
    Console(highlight=False, soft_wrap=True).print(table)
    next_step(f"lingraft verify {given.words} --data {data or '…'} --eps …")


def _facts(model: dict[str, Any]) -> dict[str, str]:
    eps, origin = model["eps"], model["origin"]
    facts = {
        "model": model["architecture"] or (origin and origin["place"]) or "a module of your own",
        "input": "×".join(map(str, model["input_shape"])) + f", {model['classes']} classes",
        "data": model["data"],
        "test data": model["test_data"],
        "ε": "one for each feature" if isinstance(eps, list) else eps if eps is None else show_eps(eps),
        "seed": model["seed"],
        "parent": model["parent"],
        "made with": ", ".join(f"{name} {version}" for name, version in model["versions"].items()) or None,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _sites(sites: list[dict[str, Any]]) -> Table:
    table = Table("site", "shape", title="Grafted sites", title_justify="left")
    for heading in ("neurons", "grafted", "of these pruned"):
        table.add_column(heading, justify="right")
    for site in sites:
        neurons = math.prod(site["shape"])
        shape = "×".join(map(str, site["shape"]))
        table.add_row(site["name"], shape, f"{neurons:,}", f"{site['grafted'] / neurons:.1%}", f"{site['pruned']:,}")
    return table


def _figures(rows: list[Row]) -> Table:
    """One line for each figure, one column for each ε at which the run was verified."""
    table = Table("", title="Figures", title_justify="left")
    for row in rows:
        table.add_column(f"ε = {cell(row, 'ε')}", justify="right")
    for heading in ("SA %", "RA %", "VA %", "UNR %", "Time s", "Images", "Limit s", "Attack", "Grafted %"):
        table.add_row(heading, *(cell(row, heading) for row in rows))
    for verdict in ("verified", "falsified", "unknown", "misclassified"):
        if any(row.verdicts for row in rows):
            table.add_row(verdict, *(str(row.verdicts.get(verdict, "–")) for row in rows))
    return table
